"""What is a word: the vocabulary that tools are found with, words of our trade, and what reads like English."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

_VOCABULARY: Final = Path(__file__).parents[1] / "search" / "data" / "vocab.txt"
_OF_OUR_TRADE: Final = """
    airtable artifactory bigquery bitbucket bytecode cassandra checkbox chromium circleci clickhouse cloudflare
    cloudfront cockroachdb confluence couchdb couchbase databricks datacenter datadog dropbox duckdb dynamodb
    elasticache elasticsearch fargate fastapi filesystem firestore github gitlab grafana graphql hashicorp hypertext
    influxdb internationalization javascript jenkins jetbrains kerberos kibana kubernetes langchain letsencrypt
    linkedin localhost logstash mailchimp mailgun mariadb memcached microservice middleware minikube mixpanel mongodb
    monorepo namespace newrelic nodejs okta openai openshift opensearch opentelemetry ollama openrouter openstack
    pagerduty pinecone playwright podman postgres postgresql postman powershell prometheus puppeteer pytorch qdrant
    rabbitmq readonly redshift runtime sagemaker salesforce selenium sendgrid serverless servicenow shopify
    snowflake sourcegraph sqlalchemy sqlserver stacktrace stackoverflow stderr stdout subprocess subdomain supabase
    tensorflow terraform timescaledb timestamp traefik trunkline tailscale typescript username vercel virtualenv
    weaviate webhook websocket whatsapp whitelist wordpress workspace zookeeper
"""
"""Names of products and terms that are no English, or too young for a dictionary."""
_LONGEST: Final = 20
_SHORTEST_JOINED: Final = 3
_ONE_CASE: Final = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)\Z")
_PAIRS: Final = (
    "abcdfgiklmnprstuvwy baeilorsu cacehiklorstuy dadeilorsuy eabcdefgilmnopqrstuvwxy faefilortu "
    "gaeghilnorsu haeiortuy iabcdefglmnoprstvz jaeou keis ladeilostuy mabeimopsu nacdefgiknostuvy "
    "oabcdfgiklmnoprstuvwy paehiloprstu qu racdefgiklmnoprstuvy sacehiklmopstuwy tacehilorstuy "
    "uabcdegilmnprst vaeio waehinos xcipt yeimos ze"
)
_FOLLOWERS: Final = {letters[0]: frozenset(letters[1:]) for letters in _PAIRS.split()}
"""The letters that follow each letter in English words, the rare pairs left out."""
_LETTERS_PER_RARE_PAIR: Final = 10


def is_word(text: str) -> bool:
    """A single word, also of two that were joined (`workflow`). Random letters are one less than once in a hundred."""
    if len(text) > _LONGEST or _ONE_CASE.match(text) is None:
        return False
    word = text.lower()
    known = _known()
    if word in known or any(word[:at] in known and word[at:] in known for at in _seams(word)):
        return True
    rare = sum(second not in _FOLLOWERS[first] for first, second in pairwise(word))
    return rare <= len(word) // _LETTERS_PER_RARE_PAIR


def _seams(word: str) -> range:
    return range(_SHORTEST_JOINED, len(word) - _SHORTEST_JOINED + 1)


@cache
def _known() -> frozenset[str]:
    """Read when the first text is asked about: most starts never need it."""
    try:
        pieces = _VOCABULARY.read_text(encoding="utf-8").split()
    except OSError:
        pieces = []
    return frozenset(piece for piece in pieces if piece.isalpha() and len(piece) >= _SHORTEST_JOINED).union(
        _OF_OUR_TRADE.split()
    )

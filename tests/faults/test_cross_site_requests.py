"""Requests that web pages make a browser send to the gateway, in a real browser and header by header."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Site, visiting
from tests.support.gateway import Gateway
from tests.support.http_wire import fetch

pytestmark = pytest.mark.law

EXECUTE = "/api/proxy/execute"
PAGE = """<!doctype html><title>A page of somebody's</title><iframe name=frame></iframe><script>
const gateway = %s, body = JSON.stringify(%s), results = {};
const attempts = {
  text: () => fetch(gateway + "%s", {method: "POST", mode: "no-cors", body}),
  form: () => fetch(gateway + "%s", {method: "POST", mode: "no-cors", body,
                    headers: {"Content-Type": "application/x-www-form-urlencoded"}}),
  untyped: () => fetch(gateway + "%s", {method: "POST", mode: "no-cors", body: new Blob([body])}),
  json: () => fetch(gateway + "%s", {method: "POST", headers: {"Content-Type": "application/json"}, body}),
  beacon: async () => { if (!navigator.sendBeacon(gateway + "%s", new Blob([body]))) throw Error("not sent"); },
  submitted: async () => {
    const form = document.createElement("form");
    const [name, value] = body.split(/(?<="session":")/);
    Object.assign(form, {method: "post", action: gateway + "%s", enctype: "text/plain", target: "frame"});
    form.append(Object.assign(document.createElement("input"), {name: name + "=", value}));
    document.body.append(form);
    form.submit();
  },
  image: () => new Promise(done => {
    const image = Object.assign(new Image(), {src: gateway + "/api/tools/discover?query=run+a+command"});
    image.onload = image.onerror = done;
  }),
};
(async () => {
  for (const [name, attempt] of Object.entries(attempts)) {
    try { await attempt(); results[name] = "sent"; } catch (error) { results[name] = "kept by the browser"; }
  }
  await new Promise(done => setTimeout(done, 1000));
  await fetch("/told", {method: "POST", body: JSON.stringify(results)});
})();
</script>"""


def shell(folder: Path) -> dict[str, Any]:
    builtin = {"kind": "builtin", "root": str(folder), "tools": {"allow": ["Bash"]}, "sandbox": "off"}
    return {"local": builtin}


def command(folder: Path, name: str) -> dict[str, Any]:
    return {
        "tool_id": "local.Bash",
        "arguments": {"command": f"touch {shlex.quote(str(folder / name))}"},
        "session": "",
    }


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_on_another_port_of_this_machine_runs_no_tool(tmp_path: Path, host: str) -> None:
    with Gateway(tmp_path, shell(tmp_path), require_provisioning=False) as gateway:
        body = json.dumps(command(tmp_path, "run-by-the-page"))
        page = PAGE % (json.dumps(f"http://{host}:{gateway.port}"), body, *[EXECUTE] * 6)
        with Site(page) as site, visiting(f"http://{host}:{site.port}/", tmp_path):
            results = json.loads(site.heard())
        assert results["text"] == results["form"] == results["untyped"] == results["beacon"] == "sent"
        assert not (tmp_path / "run-by-the-page").exists()
        assert (tmp_path / "browser.log").exists()


async def test_what_the_page_sends_would_run_if_a_program_sent_it(tmp_path: Path) -> None:
    with Gateway(tmp_path, shell(tmp_path), require_provisioning=False) as gateway:
        own = f"http://127.0.0.1:{gateway.port}"
        refused: dict[str, dict[str, str]] = {
            "another port": {"Origin": "http://127.0.0.1:1", "Content-Type": "application/json"},
            "another name of this machine": {"Origin": f"http://localhost:{gateway.port}"},
            "the same site": {"Sec-Fetch-Site": "same-site", "Content-Type": "application/json"},
            "another site": {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"},
            "a form of our own": {"Origin": own, "Content-Type": "application/x-www-form-urlencoded"},
            "nothing said of the body": {"Sec-Fetch-Site": "same-origin"},
        }
        port = f"127.0.0.1:{gateway.port}"
        for what, headers in refused.items():
            body = json.dumps(command(tmp_path, "canary")).encode()
            reply = await fetch(gateway.port, "POST", EXECUTE, headers, body, host=port)
            assert reply.status in (400, 403, 415), what
            assert not (tmp_path / "canary").exists(), what
        for name, headers in {
            "curl": {"Content-Type": "application/x-www-form-urlencoded"},
            "ours": {"Origin": own, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"},
        }.items():
            body = json.dumps(command(tmp_path, name)).encode()
            reply = await fetch(gateway.port, "POST", EXECUTE, headers, body, host=port)
            assert reply.status == 200, reply
            assert (tmp_path / name).exists()

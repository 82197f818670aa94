// Reads a JSON array of texts, writes a JSON object: for each tokenizer the tokens of every text.
import { readFileSync } from "node:fs";

import { getTokenizer } from "@anthropic-ai/tokenizer";
import { encode as o200k } from "gpt-tokenizer/encoding/o200k_base";
import llama3 from "llama3-tokenizer-js";

const texts = JSON.parse(readFileSync(0, "utf8"));
const claude = getTokenizer();
const plain = { bos: false, eos: false };

process.stdout.write(
  JSON.stringify({
    o200k: texts.map((text) => o200k(text, { allowedSpecial: new Set(), disallowedSpecial: new Set() }).length),
    claude: texts.map((text) => claude.encode(text.normalize("NFKC"), [], []).length),
    llama3: texts.map((text) => llama3.encode(text, plain).length),
  }),
);

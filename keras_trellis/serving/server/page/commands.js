// Requests and their settings as text: a link, a command line, a program.

const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const indented = (lines) => lines.map((line) => `    ${line},\n`).join("");
const DRAWN = ["temperature", "top_p", "seed", "max_tokens"]; // as OpenAI's package names them

export function link(address, fields) {
  const settings = Object.entries(fields).filter(([, value]) => value !== "");
  return `${address}#${new URLSearchParams(settings)}`;
}

export function curl(address, fields, hasKey) {
  const key = hasKey ? ' -H "Authorization: Bearer $KERAS_TRELLIS_KEY"' : "";
  return `curl --fail-with-body ${inShell(`${address}v1/completions`)} -H 'Content-Type: application/json'${key} \\\n` +
    `  -d ${inShell(JSON.stringify(fields))}\n`;
}

// A string of JSON is one of Python, too.
export function python(address, fields, hasKey) {
  const key = hasKey ? 'os.environ["KERAS_TRELLIS_KEY"]' : '"none"';
  const text = ["model", "prompt"].map((name) => `${name}=${JSON.stringify(fields[name])}`);
  const drawn = DRAWN.filter((name) => name in fields).map((name) => `${name}=${fields[name]}`);
  return `${hasKey ? "import os\n\n" : ""}import openai  # pip install openai\n\n` +
    `client = openai.OpenAI(base_url=${JSON.stringify(`${address}v1`)}, api_key=${key})\n` +
    "answer = client.completions.create(\n" +
    indented([...text, ...drawn, `extra_body={"top_k": ${fields.top_k}}`]) +
    ")\nprint(answer.choices[0].text)\n";
}

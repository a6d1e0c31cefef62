// What the page asks of the server that it comes from.

let key = ""; // of the server, if it wants one

export const setKey = (value) => { key = value; };

export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function ask(path, fields, signal) {
  const headers = fields ? { "Content-Type": "application/json" } : {};
  if (key) headers.Authorization = `Bearer ${key}`;
  const [method, body] = fields ? ["POST", JSON.stringify(fields)] : ["GET", undefined];
  const response = await fetch(path, { method, headers, body, signal });
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw new Refusal(answer?.error?.message ?? response.statusText, response.status);
}

export const get = async (path) => (await ask(path)).json();
export const post = async (path, fields, signal) => (await ask(path, fields, signal)).json();

// Yields the parts of a text as they come.
export async function* stream(fields, signal) {
  const response = await ask("v1/completions", { ...fields, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("The answer has broken off.");
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const answer = JSON.parse(data);
      if (answer.error) throw new Error(answer.error.message);
      yield answer.choices[0];
    }
  }
}

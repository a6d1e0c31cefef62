"use strict";

// Everything that comes from a person or a model is shown as text (textContent), never read as HTML.

const WARMEST = 16; // bits of surprise at which the colour is full
const PRECISE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

const byId = (id) => document.getElementById(id);

function tell(id, message, isError = false) {
  byId(id).textContent = message;
  byId(id).classList.toggle("error", isError);
}

async function post(path, fields, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields),
    signal,
  });
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: response.statusText }));
  throw new Error(error);
}

// How surprising each token is.

function describe(token, nll) {
  const bits = PRECISE.format(nll / Math.LN2);
  const probability = PRECISE.format(Math.exp(-nll));
  return `${JSON.stringify(token)}: ${bits} bits, ${PRECISE.format(nll)} nats, probability ${probability}`;
}

function tokenElement(token, nll) {
  const element = document.createElement("span");
  element.setAttribute("role", "listitem");
  element.setAttribute("aria-label", describe(token, nll));
  element.tabIndex = -1;
  element.style.setProperty("--heat", Math.min(nll / Math.LN2 / WARMEST, 1));
  element.textContent = token === "<eos>" ? "↵" : token;
  return element;
}

function showTokens({ tokens, nll, separator }) {
  const parts = tokens.flatMap((token, index) => {
    const after = token === "<eos>" ? "\n" : separator;
    return [tokenElement(token, nll[index]), after];
  });
  byId("tokens").replaceChildren(...parts);
  byId("detail").textContent = "";
  byId("heat").hidden = !tokens.length;
  if (tokens.length) byId("tokens").firstElementChild.tabIndex = 0;
  const total = nll.reduce((sum, each) => sum + each, 0);
  const mean = total / tokens.length;
  tell("score-status", tokens.length
    ? `Perplexity ${PRECISE.format(Math.exp(mean))}: ${PRECISE.format(mean / Math.LN2)} bits a token, ` +
      `${tokens.length.toLocaleString("en")} tokens`
    : "There is no token in this text.");
}

async function score(event) {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  byId("heat").hidden = true;
  tell("score-status", "Reading …");
  try {
    const response = await post("score", { text: byId("text").value });
    showTokens(await response.json());
  } catch (error) {
    tell("score-status", error.message, true);
  } finally {
    button.disabled = false;
  }
}

function showDetail(event) {
  const token = event.target.closest("[role=listitem]");
  if (token) byId("detail").textContent = token.getAttribute("aria-label");
}

// One token is reached by the tabulator, the others from it by arrow keys.
function moveFocus(event) {
  const from = event.target;
  const to = {
    ArrowRight: from.nextElementSibling,
    ArrowLeft: from.previousElementSibling,
    Home: from.parentElement.firstElementChild,
    End: from.parentElement.lastElementChild,
  }[event.key];
  if (!to) return;
  event.preventDefault();
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

// What the model writes.

let writing = null; // the AbortController of the text that is being written

function settings(form) {
  const fields = { text: form.elements.text.value };
  for (const name of ["temperature", "top_k", "top_p", "seed", "max_length"]) {
    fields[name] = form.elements[name].valueAsNumber;
  }
  if (Number.isNaN(fields.seed)) [fields.seed] = crypto.getRandomValues(new Uint32Array(1));
  return fields;
}

async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield* lines.map((line) => JSON.parse(line));
  }
}

async function write(fields, signal) {
  for await (const { text, error } of linesOf(await post("generate", fields, signal))) {
    if (error) throw new Error(error);
    byId("added").append(text);
  }
}

async function generate(event) {
  event.preventDefault();
  const fields = settings(event.target);
  const start = event.target.querySelector("button");
  writing = new AbortController();
  byId("given").textContent = fields.text;
  byId("added").textContent = "";
  byId("written").hidden = false;
  [start.disabled, byId("stop").disabled] = [true, false];
  tell("generate-status", "Writing …");
  try {
    await write(fields, writing.signal);
    tell("generate-status", `Done; seed ${fields.seed}`);
  } catch (error) {
    if (writing.signal.aborted) tell("generate-status", `Stopped; seed ${fields.seed}`);
    else tell("generate-status", error.message, true);
  } finally {
    [start.disabled, byId("stop").disabled] = [false, true];
  }
}

async function begin() {
  byId("score").addEventListener("submit", score);
  byId("generate").addEventListener("submit", generate);
  byId("stop").addEventListener("click", () => writing.abort());
  for (const name of ["pointerover", "focusin"]) byId("tokens").addEventListener(name, showDetail);
  byId("tokens").addEventListener("keydown", moveFocus);
  const model = await (await fetch("model")).json();
  byId("name").textContent = model.name;
  byId("generate").elements.max_length.max = model.most_tokens;
}

begin();

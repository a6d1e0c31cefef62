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

function describe(word, known, nll) {
  const bits = PRECISE.format(nll / Math.LN2);
  const probability = PRECISE.format(Math.exp(-nll));
  const numbers = `${bits} bits, ${PRECISE.format(nll)} nats, probability ${probability}`;
  if (known) return `${JSON.stringify(word)}: ${numbers}`;
  return `${JSON.stringify(word)} is unknown to the model, which reads <unk>; of that, ${numbers}`;
}

function tokenElement(word, known, nll) {
  const element = document.createElement("span");
  element.setAttribute("role", "listitem");
  element.setAttribute("aria-label", describe(word, known, nll));
  element.tabIndex = -1;
  element.classList.toggle("unknown", !known);
  element.style.setProperty("--heat", Math.min(nll / Math.LN2 / WARMEST, 1));
  element.textContent = word === "<eos>" ? "↵" : word;
  return element;
}

// What the model tells of a text that it does not know the words of looks like good English.
function tellUnknown(id, unknown, count, of, so = "") {
  const verb = unknown === 1 ? "is" : "are";
  tell(id, unknown
    ? `${unknown.toLocaleString("en")} of ${count.toLocaleString("en")} ${of} ${verb} unknown to ` +
      `the model, which reads <unk> instead${so}`
    : "");
}

function showTokens({ words, known, nll, blanks }) {
  const parts = words.flatMap((word, index) => {
    const after = word === "<eos>" ? "\n" : "";
    return [blanks[index], tokenElement(word, known[index], nll[index]), after];
  });
  byId("tokens").replaceChildren(...parts);
  byId("detail").textContent = "";
  byId("heat").hidden = !words.length;
  if (words.length) byId("tokens").firstElementChild.tabIndex = 0;
  const total = nll.reduce((sum, each) => sum + each, 0);
  const mean = total / words.length;
  const unknown = known.filter((each) => !each).length;
  byId("legend").hidden = !unknown;
  tellUnknown("score-unknown", unknown, words.length, "tokens", ": the perplexity is of that");
  tell("score-status", words.length
    ? `Perplexity ${PRECISE.format(Math.exp(mean))}: ${PRECISE.format(mean / Math.LN2)} bits a token, ` +
      `${words.length.toLocaleString("en")} tokens`
    : "There is no token in this text.");
}

async function score(event) {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  byId("heat").hidden = true;
  tell("score-status", "Reading …");
  tell("score-unknown", "");
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
  for await (const { unknown, text, error } of linesOf(await post("generate", fields, signal))) {
    if (error) throw new Error(error);
    if (unknown) tellUnknown("generate-unknown", unknown.tokens, unknown.of, "tokens to go on from");
    if (text) byId("added").append(text);
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
  [start.disabled, byId("stop").disabled, byId("copy").disabled] = [true, false, false];
  tell("generate-status", "Writing …");
  tell("generate-unknown", "");
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

// Only pages of this machine and of https may write to the clipboard; elsewhere the text is selected.
async function copy(event) {
  const button = event.target;
  try {
    await navigator.clipboard.writeText(byId("written").textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId("written"));
    button.textContent = "Selected: Ctrl+C copies it";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

// What was typed, which outlasts a reload.

const inputs = () => [...document.querySelectorAll("textarea, input")];
const keyOf = (input) => input.id || input.name;
const keep = (input) => sessionStorage.setItem(keyOf(input), input.value);

function restore() {
  for (const input of inputs()) input.value = sessionStorage.getItem(keyOf(input)) ?? input.value;
}

function sendOnEnter(event) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  const button = event.currentTarget.querySelector("button");
  if (!button.disabled) event.currentTarget.requestSubmit(button);
}

// What the page opens with.

const TOLD = /^trained on$|perplexity|bpc/i; // of the card, beside the name

function showModel({ name, card, most_tokens }) {
  const rows = Object.entries(card);
  const told = rows.filter(([fact, value]) => TOLD.test(fact) && value !== "not stated");
  byId("name").textContent = name;
  byId("trained").textContent = told.map(([fact, value]) => ` · ${fact.toLowerCase()} ${value}`).join("");
  byId("card").hidden = !rows.length;
  byId("facts").replaceChildren(...rows.flatMap(([fact, value]) => [["dt", fact], ["dd", value]])
    .map(([kind, text]) => Object.assign(document.createElement(kind), { textContent: text })));
  byId("generate").elements.max_length.max = most_tokens;
}

async function showExample() {
  if (sessionStorage.getItem("text") === null) {
    const { text } = await (await fetch("example")).json();
    const input = byId("text");
    // It is not put under the hands of who has begun to type.
    if (!input.value && document.activeElement !== input) input.value = text ?? "";
  }
  if (byId("text").value) byId("score").requestSubmit();
}

async function begin() {
  restore();
  byId("score").addEventListener("submit", score);
  byId("generate").addEventListener("submit", generate);
  byId("stop").addEventListener("click", () => writing.abort());
  byId("copy").addEventListener("click", copy);
  for (const input of inputs()) input.addEventListener("input", () => keep(input));
  for (const id of ["score", "generate"]) byId(id).addEventListener("keydown", sendOnEnter);
  for (const name of ["pointerover", "focusin"]) byId("tokens").addEventListener(name, showDetail);
  byId("tokens").addEventListener("keydown", moveFocus);
  showModel(await (await fetch("model")).json());
  await showExample();
}

begin();

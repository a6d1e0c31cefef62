import * as commands from "./commands.js";
import * as server from "./server.js";
import { printOf, scored, textOf, written } from "./tokens.js";
import * as view from "./view.js";

const { byId, tell } = view;
const MOST_BARS = 8;
const MOST_EARLIER = 20;
// The page opens with one of these, each like the training text of a task, with a surprise in it.
const EXAMPLES = [
  "the company said it expects to report a loss for the third quarter\n" +
    "the violin player sold his shares in a piano factory",
  "the with statement is used to wrap the execution of a block with methods defined by a piano",
  "The ship was built in the 19th century , and was named after the king of the piano .",
];
const MOST_UNKNOWN = 0.25; // the share of an example's tokens

const form = byId("ask");
const inputs = [...form.querySelectorAll("[name]")];
const input = (name) => form.elements.namedItem(name);

let model = null; // what /v1/models says of it
let work = new AbortController(); // what is being done
let shown = null; // the text whose tokens are shown, before what the model has added
let seed = null; // of what it has added

// What is typed, which outlasts a reload.

const keep = (each) => sessionStorage.setItem(each.name, each.value);
const typed = () => Object.fromEntries(inputs.filter(({ name }) => name !== "key").map((each) => [each.name, each.value]));

function fill(fields) {
  for (const each of inputs) {
    if (fields[each.name] === undefined) continue;
    each.value = fields[each.name];
    keep(each);
  }
}

function request() {
  const fields = { model: model?.id, prompt: input("text").value };
  for (const name of ["max_tokens", "temperature", "top_k", "top_p", "seed"]) {
    fields[name] = input(name).valueAsNumber;
  }
  if (Number.isNaN(fields.seed)) fields.seed = seed ?? crypto.getRandomValues(new Uint32Array(1))[0];
  return fields;
}

// One thing is done at a time; another one ends it.

async function during(message, does) {
  work.abort();
  const own = work = new AbortController();
  byId("stop").disabled = false;
  tell(message);
  try {
    if (!model) await showModel();
    const done = await does(own.signal);
    if (own === work) tell(done);
  } catch (error) {
    if (own !== work) return; // the other one tells what it does
    if (error.status === 401) byId("key-field").hidden = false;
    tell(own.signal.aborted ? "Stopped." : error.message, !own.signal.aborted);
  } finally {
    if (own === work) byId("stop").disabled = true;
  }
}

// How many alternatives the server lists beside so many tokens.
const barsOf = (tokens) => Math.min(MOST_BARS, Math.floor(model.max_alternatives / (tokens + 1)));

async function read(text, signal) {
  view.clear();
  shown = null;
  let most = text.length; // tokens, if each is a character
  if (barsOf(most) < MOST_BARS) {
    most = (await server.post("tokenize", { texts: [text] }, signal)).ids[0].length;
  }
  const fields = { texts: [text], alternatives: barsOf(most) };
  const { scores: [score], separator } = await server.post("score", fields, signal);
  view.add(scored(score, separator), separator);
  shown = text;
  return separator;
}

const readOnly = () => during("Reading …", async (signal) => {
  const text = input("text").value;
  seed = null;
  await read(text, signal);
  view.selectMostSurprising();
  remember(text, text);
  return view.summarize();
});

function write() {
  if (!form.reportValidity()) return undefined;
  seed = null;
  return during("Writing …", async (signal) => {
    const fields = request();
    const separator = await read(fields.prompt, signal);
    const summary = view.summarize();
    view.selectMostSurprising();
    seed = fields.seed;
    try {
      const parts = server.stream({ ...fields, logprobs: barsOf(fields.max_tokens) }, signal);
      for await (const { logprobs } of parts) view.add(written(logprobs, separator), separator);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      if (!signal.aborted || shown === fields.prompt) end(fields.prompt);
    }
    return `${signal.aborted ? "Stopped" : "Done"}; seed ${fields.seed}. ${summary}`;
  });
}

function end(prompt) {
  const added = view.shownTokens().filter(({ own }) => own);
  byId("written").textContent = `Written: ${printOf(added)}`;
  remember(prompt, textOf(view.shownTokens()));
}

// What has been written and read.

const earlier = JSON.parse(sessionStorage.getItem("earlier") ?? "[]");

function remember(text, whole) {
  if (!whole.trim() || earlier[0]?.whole === whole) return;
  earlier.unshift({ ...typed(), text, whole, ...(seed === null ? {} : { seed: String(seed) }) });
  earlier.length = Math.min(earlier.length, MOST_EARLIER);
  sessionStorage.setItem("earlier", JSON.stringify(earlier));
  showEarlier();
}

// Texts that go on from the same one differ at their ends.
const shortened = (text) => (text.length > 100 ? `${text.slice(0, 30)} … ${text.slice(-65)}` : text);

function showEarlier() {
  byId("earlier").hidden = !earlier.length;
  byId("history").replaceChildren(...earlier.map((entry) => {
    const [item, button] = [document.createElement("li"), document.createElement("button")];
    Object.assign(button, { type: "button", className: "plain", textContent: shortened(entry.whole) });
    button.addEventListener("click", () => restore(entry));
    item.append(button);
    return item;
  }));
}

const restore = (entry) => during("Reading …", async (signal) => {
  fill(entry);
  await read(entry.whole, signal);
  view.selectMostSurprising();
  return view.summarize();
});

// What is copied.

const address = () => location.href.replace(/[?#].*$/, "");
const COPIED = {
  text: () => (view.shownTokens().length ? printOf(view.shownTokens()) : input("text").value),
  link: () => commands.link(address(), typed()),
  curl: () => commands.curl(address(), request(), Boolean(input("key").value)),
  python: () => commands.python(address(), request(), Boolean(input("key").value)),
};

// Only pages of this machine and of https may write to the clipboard; elsewhere the text is selected.
async function copy({ target }) {
  const what = target.dataset.copy;
  if (!what || !form.reportValidity()) return;
  const text = COPIED[what]();
  if (what === "link") history.replaceState(null, "", text);
  try {
    await navigator.clipboard.writeText(text);
    byId("copy").hidden = true;
    byId("copied").textContent = `Copied: ${target.textContent}`;
  } catch {
    Object.assign(byId("copy"), { hidden: false, value: text });
    byId("copy").select();
    byId("copied").textContent = "Selected: Ctrl+C copies it";
  }
}

// What the page opens with.

async function showModel() {
  server.setKey(input("key").value);
  const [{ data: [described] }, { facts }] = [await server.get("v1/models"), await server.get("card")];
  view.showModel(described, facts);
  input("max_tokens").max = described.max_tokens;
  model = described;
}

async function example(signal) {
  const shares = await Promise.all(EXAMPLES.map(async (text) => {
    // A model without <unk> refuses what it does not know.
    const answer = await server.post("tokenize", { texts: [text] }, signal).catch(() => null);
    return answer ? answer.unknown[0] / answer.ids[0].length : 1;
  }));
  const least = Math.min(...shares);
  if (least <= MOST_UNKNOWN) return EXAMPLES[shares.indexOf(least)];
  const fields = { model: model.id, prompt: "", max_tokens: 24, top_k: 40, seed: 0 };
  return (await server.post("v1/completions", fields, signal)).choices[0].text.trim();
}

const showExample = () => during("Reading …", async (signal) => {
  const text = await example(signal);
  const field = input("text");
  // It is not put under the hands of who has begun to type.
  if (field.value || document.activeElement === field) return "";
  field.value = text;
  await read(text, signal);
  view.selectMostSurprising();
  return view.summarize();
});

function open() {
  const linked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const stored = Object.fromEntries(inputs.map(({ name }) => [name, sessionStorage.getItem(name) ?? undefined]));
  fill({ ...stored, ...linked, key: stored.key });
  if (linked.text === undefined && stored.text === undefined) return showExample();
  return input("text").value ? readOnly() : during("", async () => "");
}

function sendOnEnter(event) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  form.requestSubmit();
}

view.listen();
view.onBranch((text) => {
  fill({ text });
  write();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  write();
});
form.addEventListener("keydown", sendOnEnter);
byId("read").addEventListener("click", readOnly);
byId("stop").addEventListener("click", () => work.abort());
byId("copies").addEventListener("click", copy);
for (const each of inputs) each.addEventListener("input", () => keep(each));
input("key").addEventListener("change", () => { server.setKey(input("key").value); model = null; });
addEventListener("hashchange", open);
showEarlier();
open();

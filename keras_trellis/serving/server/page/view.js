// The tokens of a text, their numbers and what the model expected instead. All that comes from a
// person or a model is shown as text (textContent), never read as HTML.

import { WARMEST, bitsOf, describe, percent, precise, shown, textOf } from "./tokens.js";

export const byId = (id) => document.getElementById(id);
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

let tokens = []; // that are shown
let separator = " "; // between two tokens of a line
let branch = () => {}; // takes a text to go on from

export const onBranch = (function_) => { branch = function_; };
export const shownTokens = () => tokens;

export function tell(message, isError = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("error", isError);
}

export function clear() {
  tokens = [];
  byId("tokens").replaceChildren();
  for (const id of ["unknown", "detail", "written"]) byId(id).textContent = "";
  for (const id of ["tokens", "scale", "legend", "branches"]) byId(id).hidden = true;
}

export function add(more, between) {
  separator = between;
  for (const token of more) {
    const text = shown(token.print, separator);
    if (token.piece !== "\n" && text !== token.print) byId("tokens").append(separator);
    byId("tokens").append(option(token, text));
    if (token.piece === "\n") byId("tokens").append("\n");
    if (!tokens.length) byId("tokens").firstElementChild.tabIndex = 0;
    tokens.push(token);
  }
  byId("tokens").hidden = byId("scale").hidden = !tokens.length;
  byId("legend").hidden = !tokens.some(({ unknown }) => unknown);
}

function option(token, text) {
  const element = make("span", { role: "option", tabIndex: -1, textContent: text });
  element.ariaLabel = describe(token);
  element.ariaSelected = "false";
  element.classList.toggle("unknown", token.unknown);
  element.classList.toggle("own", token.own);
  element.style.setProperty("--heat", Math.min(bitsOf(token.nll) / WARMEST, 1));
  return element;
}

// What the model tells of a text whose words it does not know looks like good English.
export function summarize() {
  const read = tokens.filter(({ own }) => !own);
  const unknown = read.filter((token) => token.unknown).length;
  byId("unknown").textContent = unknown
    ? `${unknown.toLocaleString("en")} of ${read.length.toLocaleString("en")} tokens ` +
      `${unknown === 1 ? "is" : "are"} unknown to the model, which reads <unk> instead: ` +
      "the perplexity is of that"
    : "";
  if (!read.length) return "There is no token in this text.";
  const mean = read.reduce((sum, { nll }) => sum + nll, 0) / read.length;
  return `Perplexity ${precise(Math.exp(mean))}: ${precise(bitsOf(mean))} bits a token, ` +
    `${read.length.toLocaleString("en")} tokens`;
}

// The place of a token.

const options = () => [...byId("tokens").children];
const optionAt = (event) => event.target.closest("[role=option]");

export function select(index) {
  const element = options()[index];
  if (!element) return;
  for (const each of options()) {
    each.tabIndex = each === element ? 0 : -1;
    each.ariaSelected = String(each === element);
  }
  byId("detail").textContent = element.ariaLabel;
  const { likeliest, piece } = tokens[index];
  byId("branches").hidden = !likeliest.length;
  byId("bars").replaceChildren(...likeliest.map((each) => bar(each, index, piece)));
}

export function selectMostSurprising() {
  select(tokens.reduce((most, { nll }, index) => (nll > tokens[most].nll ? index : most), 0));
}

function bar({ piece, logProb }, index, actual) {
  const button = make("button", { type: "button" });
  const word = make("span", { textContent: shown(piece, separator) });
  button.append(word, make("small", { textContent: percent(logProb) }));
  button.style.setProperty("--share", Math.exp(logProb));
  if (piece === actual) button.ariaCurrent = "true";
  button.addEventListener("click", () => branch(textOf(tokens.slice(0, index)) + piece));
  const item = make("li", {});
  item.append(button);
  return item;
}

// One token is reached by the tabulator, the others from it by arrow keys.
function moveFocus(event) {
  const all = options();
  const index = all.indexOf(event.target);
  const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: all.length - 1 }[event.key];
  if (!all[to]) return;
  event.preventDefault();
  all[to].focus();
}

function preview(event) {
  if (optionAt(event)) byId("detail").textContent = optionAt(event).ariaLabel;
}

function endPreview() {
  const selected = byId("tokens").querySelector("[aria-selected=true]");
  byId("detail").textContent = selected?.ariaLabel ?? "";
}

export function listen() {
  const list = byId("tokens");
  for (const name of ["focusin", "click"]) {
    list.addEventListener(name, (event) => select(options().indexOf(optionAt(event))));
  }
  list.addEventListener("pointerover", preview);
  list.addEventListener("pointerleave", endPreview);
  list.addEventListener("keydown", moveFocus);
}

// The model.

const TOLD = /^trained on$|perplexity|bpc/i; // of the card, beside the name

export function showModel({ id, version }, facts) {
  const rows = Object.entries(facts);
  const told = rows.filter(([fact, value]) => TOLD.test(fact) && value !== "not stated");
  byId("name").textContent = `${id}, version ${version}`;
  byId("trained").textContent = told.map(([fact, value]) => ` · ${fact.toLowerCase()} ${value}`).join("");
  byId("card").hidden = !rows.length;
  byId("facts").replaceChildren(...rows.flatMap(([fact, value]) =>
    [make("dt", { textContent: fact }), make("dd", { textContent: value })]));
}

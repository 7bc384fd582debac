// The search page: the form's state is the address, a search is one request, and every text is written as text.
"use strict";

const $ = (id) => document.getElementById(id);
const form = $("form"), columns = $("columns"), status_ = $("status");
const ABOUT = { model: "nearest in meaning", bm25: "the same words" };
const SHORT = { model: "model", both: "both", bm25: "BM25" };
const LINKS = ["url", "link", "href", "uri"];
const NARROW = matchMedia("(max-width: 54rem)"); // as in style.css
const WRAPPED = [40, 100]; // the least and the most characters of a line that ends where a file breaks its lines
const FULL = 0.8; // a line that is longer with the next word, as a share of the width, had no room for it
const ONWARD = /^\s*[\p{Ll}\p{Lo}]/u; // a line that begins with a letter, but no capital
const FILLED = 0.7; // a line that is shorter, as a share of the width, ends of itself
const ITEM = /^\s*([-*+•]|\d+[.)])\s/; // the beginning of an item of a list
const UNSPACED = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}\u3000-\u303f\uff00-\uff65]/u;
let collection = null, running = null;

const number = (value) => value.toLocaleString("en");
const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function say(text, isError = false) {
  status_.textContent = text;
  status_.classList.toggle("error", isError);
}

// A number of JSON as it is to be shown: an integer that a float rounds stays a text, with all of its digits.
function whole(key, value, context) {
  const isRounded = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isRounded && context?.source ? context.source : value;
}

async function answer(path, options) {
  let response, found;
  try {
    response = await fetch(path, options);
    found = JSON.parse(await response.text(), whole);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: is clearspan serve still running?");
  }
  if (!response.ok) throw new Error(found.error);
  return found;
}

// ---- the form and the address

function defaults() {
  return { q: "", weight: String(collection.weight ?? ""), where: "", top: "10" };
}

function fill(parameters) {
  for (const [name, value] of Object.entries(defaults())) $(name).value = parameters.get(name) ?? value;
  show_weight();
}

function show_weight() {
  $("weighed").textContent = Number($("weight").value).toFixed(2);
}

/** Return the form's values that are not the default, as in the address. */
function state() {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(defaults())) {
    const given = $(name).value.trim();
    const same = name === "weight" ? Number(given) === Number(value) : given === value;
    if (!same && !$(name).closest("[hidden]")) found.set(name, given);
  }
  return found;
}

function submit() {
  const parameters = state(), address = parameters.size ? `/?${parameters}` : "/";
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
  search();
}

// ---- a search

async function search() {
  running?.abort();
  const parameters = state(), query = $("q").value.trim();
  document.title = query ? `${query} · ${collection.name}` : `${collection.name} · Clearspan`;
  if (!query) {
    columns.replaceChildren(help());
    $("jump").hidden = true;
    return say("");
  }
  const mine = (running = new AbortController());
  columns.setAttribute("aria-busy", "true");
  say("Searching …");
  try {
    const found = await answer(`/api/search?${parameters}`, { signal: mine.signal });
    columns.replaceChildren(...found.systems.map((system) => section(system, found)));
    link_hits();
    order();
    $("jump").hidden = columns.children.length < 2;
    const filter = found.where ? `; hits where ${found.where}` : "";
    say(`Compared with ${counted(found.num_texts, collection.unit)} in ${duration(found.seconds)}${filter}`);
  } catch (error) {
    if (error.name === "AbortError") return;
    columns.replaceChildren();
    $("jump").hidden = true;
    say(error.message, true);
  }
  if (running === mine) columns.setAttribute("aria-busy", "false");
}

const duration = (seconds) => (seconds < 1 ? `${Math.max(1, Math.round(seconds * 1000))} ms` : `${seconds.toFixed(1)} s`);

function help() {
  const made = element("div", undefined, { class: "help" });
  made.append(element("p", "Ask a question, or type a few words, and press Enter."));
  if (collection.fields.length) {
    const line = element("p", "A filter compares kept fields (");
    collection.fields.forEach((field, place) => line.append(place ? ", " : "", element("code", field)));
    line.append(collection.example ? "), for example " : ").");
    if (collection.example) line.append(element("code", collection.example), ".");
    made.append(line);
  }
  const keys = element("p");
  keys.append(element("kbd", "/"), " goes to the box, ", element("kbd", "↓"), " ", element("kbd", "↑"), " ",
    element("kbd", "←"), " ", element("kbd", "→"), " from hit to hit, ", element("kbd", "Enter"), " unfolds a text.");
  made.append(keys);
  return made;
}

// ---- hits

/** Put the systems side by side as compared; one under the other, the one that the folder chose is first, or else both. */
function order() {
  const asked = NARROW.matches ? [collection.chosen, "both", "model", "bm25"] : ["model", "both", "bm25"];
  const place = (section) => asked.indexOf(section.dataset.key);
  const sections = [...columns.querySelectorAll("section")].sort((one, other) => place(one) - place(other));
  if (sections.some((section, at) => section !== columns.children[at])) columns.append(...sections);
  $("jump").replaceChildren(...sections.map(jump));
}

function section(system, found) {
  const made = $("system").content.cloneNode(true).firstElementChild;
  made.dataset.key = system.key;
  made.querySelector("h2").textContent = system.name;
  made.setAttribute("aria-label", system.name);
  const both = `${system.weight.toFixed(2)} × model + ${(1 - system.weight).toFixed(2)} × BM25`;
  const chosen = system.key === collection.chosen ? " · chosen for this collection" : "";
  made.querySelector("header p").textContent = (ABOUT[system.key] ?? both) + chosen;
  const list = made.querySelector("ol");
  list.append(...system.hits.map((hit, place) => item(hit, place + 1)));
  if (!system.hits.length) list.replaceWith(element("p", found.where ? "No text passes the filter." : "No hits.", { class: "none" }));
  return made;
}

function item(hit, rank) {
  const made = $("hit").content.cloneNode(true).firstElementChild;
  const part = (name) => made.querySelector(name);
  made.dataset.document = JSON.stringify([hit.source, hit.record ?? hit.id]);
  made.dataset.rank = part(".rank").textContent = rank;
  part(".score").textContent = hit.score.toFixed(3);
  part(".score").title = "score";
  part(".score").setAttribute("aria-label", `score ${hit.score.toFixed(3)}`);
  const fields = Object.entries(hit.fields ?? {}).filter(([, value]) => value !== null && value !== "");
  const address = LINKS.map((name) => fields.find(([field]) => field.toLowerCase() === name)).find(Boolean);
  const target = hit.title && address && web(address[1]);
  const heading = target ? element("a", "", { href: target, rel: "noreferrer" }) : part("h3");
  if (hit.title) heading.append(...parts(Array.from(String(hit.fields[hit.title])), hit.title_marks));
  if (target) part("h3").append(heading);
  const shown = fields.filter((field) => field[0] !== hit.title && !(target && field === address));
  part("dl").append(...shown.map((field) => pair(...field)));
  if (!part("dl").children.length) part("dl").remove();
  write_text(part(".text span"), part(".more"), hit);
  const record = hit.record == null ? "" : `, record ${number(hit.record)}`;
  const chunk = hit.chunk == null ? "" : `, part ${number(hit.chunk + 1)}`;
  part(".source").textContent = `${hit.source.split("/").at(-1)}${record}${chunk}`;
  part(".source").title = hit.source;
  return made;
}

function pair(name, value) {
  const made = element("div"), target = web(value), description = element("dd");
  description.append(target ? element("a", shortened(String(value)), { href: target, rel: "noreferrer" }) : String(value));
  made.append(element("dt", name), description);
  return made;
}

const shortened = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);

/** Return an http or https address; null for anything else, such as javascript: or a name. */
function web(value) {
  if (typeof value !== "string" || !/^https?:\/\//i.test(value)) return null;
  try {
    const { protocol, href } = new URL(value);
    return protocol === "http:" || protocol === "https:" ? href : null;
  } catch {
    return null;
  }
}

function write_text(place, button, hit) {
  if (hit.text == null) return place.parentElement.remove();
  const characters = flowing(Array.from(hit.text)); // positions count characters, not UTF-16 units
  const [first, last] = hit.passage;
  const folded = () => {
    const inside = hit.marks.filter(([start, end]) => start >= first && end <= last);
    return [first > 0 ? "… " : "", ...parts(characters, inside, first, last), last < characters.length || hit.is_cut ? " …" : ""];
  };
  const whole = () => [...parts(characters, hit.marks), hit.is_cut ? " …" : ""];
  const show = (isWhole) => {
    place.replaceChildren(...(isWhole ? whole() : folded()));
    button.textContent = isWhole ? "Less" : "More";
    button.setAttribute("aria-expanded", String(isWhole));
  };
  button.hidden = first === 0 && last === characters.length;
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
  show(false);
}

/**
 * Return a text in which the lines of paragraphs that a file has broken at a width are joined; as many characters.
 *
 * In such a paragraph, the next line's first word had hardly any room before most breaks, and most lines begin with a
 * small letter. Verses, lists and code differ, and stay as they are. So do breaks after a short line, such as a heading,
 * and before an item of a list.
 */
function flowing(characters) {
  const lines = characters.join("").split("\n"), found = [...characters];
  const lengths = lines.map((line) => Array.from(line.trimEnd()).length);
  const isBroken = (at) => lengths[at] > 0 && lengths[at + 1] > 0;
  const width = Math.max(0, ...lengths.filter((length, at) => isBroken(at)));
  if (width < WRAPPED[0] || width > WRAPPED[1]) return characters;
  const first_word = (line) => Array.from(line.trim().split(/\s/, 1)[0]).length;
  const isFull = (at) => lengths[at] + 1 + first_word(lines[at + 1]) > FULL * width && ONWARD.test(lines[at + 1]);
  const ends = []; // of the lines, in characters
  for (const line of lines) ends.push((ends.at(-1) ?? -1) + Array.from(line).length + 1);
  for (let first = 0, last = 0; first < lines.length; first = last + 1) {
    for (last = first; isBroken(last); ) last += 1;
    const breaks = lines.slice(first, last).map((line, at) => first + at);
    if (breaks.filter(isFull).length <= breaks.length / 2) continue;
    for (const at of breaks) {
      if (lengths[at] < FILLED * width || ITEM.test(lines[at + 1])) continue;
      const around = [lines[at].trimEnd().slice(-1), lines[at + 1].trimStart()[0]];
      found[ends[at]] = around.every((character) => UNSPACED.test(character)) ? "\u200b" : " ";
    }
  }
  return found;
}

/** Return a stretch of a text as strings and marked words. */
function parts(characters, marks, first = 0, last = characters.length) {
  const found = [];
  let done = first;
  for (const [start, end] of marks) {
    found.push(characters.slice(done, start).join(""), element("mark", characters.slice(start, end).join("")));
    done = end;
  }
  return [...found, characters.slice(done, last).join("")];
}

/** Say at each hit at which rank the other systems have it. */
function link_hits() {
  const sections = [...columns.children];
  if (sections.length < 2) return;
  for (const hit of columns.querySelectorAll("li")) {
    const found = twins(hit).filter((each) => each !== hit);
    hit.querySelector(".foot").append(...(found.length ? found.map(link) : [element("span", "only here")]));
  }
}

function link(twin) {
  const { key } = twin.closest("section").dataset, name = SHORT[key], { rank } = twin.dataset;
  const button = element("button", `${name} ${rank}`, { type: "button", class: "also", "data-key": key });
  button.setAttribute("aria-label", `rank ${rank} by ${name}: go there`);
  button.addEventListener("click", () => go(twin));
  return button;
}

function jump(section) {
  const button = element("button", SHORT[section.dataset.key], { type: "button", "data-key": section.dataset.key });
  button.addEventListener("click", () => section.scrollIntoView());
  return button;
}

const twins = (hit) => [...columns.querySelectorAll("li")].filter((each) => each.dataset.document === hit.dataset.document);

function go(hit) {
  hit?.focus();
  hit?.scrollIntoView({ block: "nearest" });
}

function highlight(target) {
  const hit = target.closest?.("li"), same = hit ? twins(hit) : [];
  for (const each of columns.querySelectorAll("li")) each.classList.toggle("same", same.length > 1 && same.includes(each));
}

// ---- keys and events

function move(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.matches("input"), hit = event.target.closest?.("li");
  if (event.key === "/" && !isTyping) {
    $("q").focus();
    $("q").select();
  } else if (event.key === "ArrowDown" && event.target === $("q")) {
    go(columns.querySelector("li"));
  } else if (hit && event.target === hit && event.key === "Enter") {
    hit.querySelector(".more:not([hidden])")?.click();
  } else if (hit && event.key.startsWith("Arrow")) {
    const lists = [...columns.querySelectorAll("ol")], column = lists.indexOf(hit.parentElement);
    const place = [...hit.parentElement.children].indexOf(hit);
    const step = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[event.key];
    const list = lists[column + step[0]];
    if (place + step[1] < 0) $("q").focus();
    else go(list?.children[Math.min(place + step[1], list.children.length - 1)]);
  } else {
    return;
  }
  event.preventDefault();
}

async function start() {
  try {
    collection = await answer("/api/collection");
  } catch (error) {
    return say(error.message, true);
  }
  $("name").textContent = collection.name;
  const keys = collection.systems.map((system) => system.key);
  const compared = collection.systems.filter((system) => system.key !== "both").map((system) => system.name);
  $("about").textContent = [counted(collection.num_texts, collection.unit), ...compared].join(" · ");
  $("weighing").hidden = !keys.includes("both");
  $("filtering").hidden = !collection.fields.length;
  if (collection.fields.length) $("where").placeholder = collection.example;
  fill(new URLSearchParams(location.search));
  form.addEventListener("submit", (event) => (event.preventDefault(), submit()));
  for (const name of ["weight", "top"]) $(name).addEventListener("change", () => form.reportValidity() && submit());
  $("weight").addEventListener("input", show_weight);
  NARROW.addEventListener("change", order);
  addEventListener("popstate", () => (fill(new URLSearchParams(location.search)), search()));
  addEventListener("keydown", move);
  for (const name of ["mouseover", "focusin"]) columns.addEventListener(name, (event) => highlight(event.target));
  columns.addEventListener("mouseleave", () => highlight(document.body));
  search();
}

start();

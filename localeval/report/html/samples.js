// The browser of samples: search, filters, a list, one sample in full. rows.py says what a row is.
//
// The address after # holds all of its state: name=value for each filter, q for the search, sample for the one that is
// shown; samples=all where there is none. gold and read may be empty: no entity there, or no answer. So links of the page
// lead to samples, an address can be passed on, and "back" goes back.
//
// Rows are inside the page, or on the server that the page came from (rows_at):
//   GET rows_at?<filters>&offset=50&limit=50  -> {matched, of, offset, rows}   rows: offset to offset + limit of those found
//   GET rows_at?<filters>&around=ID&limit=50  -> the same, at the offset (a multiple of limit) where sample ID is found
//   GET rows_at?id=ID                         -> {rows: [row]}, or {rows: []}
//
// Text of strangers becomes text nodes, never markup; what steers or turns text is shown as an escape.
"use strict";
{
  const PAGE = 50;
  const about = JSON.parse(document.getElementById("about").textContent);
  const section = document.getElementById("samples");
  const form = section.querySelector("form");
  const list = section.querySelector("ul.rows");
  const article = section.querySelector("article.sample");
  const filters = [...form.querySelectorAll("select")];
  const source = about.rows_at ? served(about.rows_at) : inside();

  // --- where rows come from ---

  function inside() {
    const rows = unpacked(JSON.parse(document.getElementById("rows").textContent));
    return {
      async find(wanted, offset, around) {
        const found = rows.filter((row) => matches(row, wanted));
        const at = around === null ? -1 : found.findIndex((row) => row.id === around);
        const from = at < 0 ? offset : at - (at % PAGE);
        return { matched: found.length, of: rows.length, offset: from, rows: found.slice(from, from + PAGE) };
      },
      async row(id) {
        return rows.find((row) => row.id === id);
      },
    };
  }

  function served(address) {
    async function ask(wanted, more) {
      const answer = await fetch(`${address}?${new URLSearchParams([...wanted, ...Object.entries(more)])}`);
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    }
    return {
      find: (wanted, offset, around) => ask(wanted, { limit: PAGE, ...(around === null ? { offset } : { around }) }),
      row: async (id) => (await ask([], { id })).rows[0],
    };
  }

  // A prompt is [n, middle, m]: the first n and the last m units of the one before it are its own, too.
  function unpacked(rows) {
    let before = "";
    for (const row of rows) {
      const [head, middle, tail] = row.prompt;
      before = before.slice(0, head) + middle + before.slice(before.length - tail);
      row.prompt = before;
    }
    return rows;
  }

  function matches(row, wanted) {
    const is = (name, test) => !wanted.has(name) || test(wanted.get(name));
    const named = (value) => value || null; // an empty name is none
    const pair = ([gold, read, exact]) =>
      is("gold", (name) => gold === named(name)) &&
      is("read", (name) => read === named(name)) &&
      is("ends", (ends) => gold !== null && read !== null && exact === (ends === "same"));
    return (
      is("outcome", (name) => row.outcomes.includes(name)) &&
      is("subset", (name) => row.subset === name) &&
      is("type", (name) => row.confused.some(([gold, read]) => gold === name || read === name)) &&
      (["gold", "read", "ends"].some((name) => wanted.has(name)) ? row.confused.some(pair) : true) &&
      [...wanted].every(([name, value]) => !name.startsWith("by.") || row.groups[name.slice(3)] === value) &&
      is("q", (text) => {
        const sought = text.toLowerCase();
        row.lower ??= [row.id, row.text, row.prompt, row.reply].map((part) => part.toLowerCase());
        return row.lower.some((part) => part.includes(sought));
      })
    );
  }

  // --- state ---

  let wanted = new Map();
  let page = { matched: 0, of: 0, offset: 0, rows: [] };
  let current = null; // the id of the sample that is shown
  let turn = 0; // only the latest question's answer is shown

  const ours = () => location.hash.includes("=");

  function read() {
    const given = new Map(new URLSearchParams(location.hash.slice(1)));
    current = given.get("sample") ?? null;
    for (const name of ["sample", "samples"]) given.delete(name);
    wanted = given;
    form.q.value = wanted.get("q") ?? "";
    const hidden = new Set([...wanted.keys()].filter((name) => name !== "q")); // of what no choice shows
    for (const filter of filters) {
      const at = about.choices[filter.name].indexOf(wanted.get(filter.name));
      filter.selectedIndex = at + 1; // before them is "any"
      if (at >= 0) hidden.delete(filter.name);
    }
    section.querySelector(".also").textContent = [...hidden].map((name) => `${name}: ${wanted.get(name) || "none"}`).join(", ");
  }

  function write(how) {
    const state = new URLSearchParams([...wanted, ...(current === null ? [] : [["sample", current]])]);
    const hash = state.size ? `#${state}` : "#samples=all";
    if (hash !== location.hash) history[how](null, "", hash);
  }

  async function show(offset, around = null) {
    const mine = ++turn;
    try {
      const found = await source.find(wanted, offset, around);
      const sample = current === null ? undefined : (found.rows.find((row) => row.id === current) ?? (await source.row(current)));
      if (mine !== turn) return;
      page = found;
      if (current === null && page.rows.length) current = page.rows[0].id; // not in the address: nobody has chosen it
      showList();
      showSample(sample ?? page.rows.find((row) => row.id === current));
    } catch (error) {
      if (mine === turn) section.querySelector(".count").textContent = `The samples could not be read: ${error.message}`;
    }
  }

  function choose(id, how = "replaceState") {
    current = id;
    write(how);
    showList();
    showSample(page.rows.find((row) => row.id === id));
  }

  async function move(step) {
    const at = page.rows.findIndex((row) => row.id === current);
    const next = at < 0 ? (step > 0 ? 0 : page.rows.length - 1) : at + step;
    if (page.rows[next]) return choose(page.rows[next].id);
    const offset = page.offset + step * PAGE;
    if (at < 0 || offset < 0 || offset >= page.matched) return;
    await show(offset);
    choose(page.rows[step > 0 ? 0 : page.rows.length - 1].id);
  }

  // --- the list ---

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  const many = (number) => number.toLocaleString("en");
  // Why a reply was not read: [in short, in words]; undefined where it was read, or no reason is known.
  const reason = (row) => row.outcomes.map((name) => about.reasons[name]).find(Boolean);

  function outcomeMark(row, short = false) {
    if (row.outcomes[0] === "right") return "✓ right";
    if (!row.outcomes.includes("unparsed")) return "✗ wrong";
    const [why] = reason(row) ?? [];
    return why === undefined ? "✗ unparsed" : short ? `✗ ${why}` : `✗ unparsed: ${why}`;
  }

  // The first units of a text, but not half a character.
  function beginning(string, most) {
    const cut = string.slice(0, most);
    return cut.length < string.length ? cut.replace(/[\ud800-\udbff]$/, "") : cut;
  }

  function gist(row) {
    if (!row.tokens) return row.read === null ? `(gold ${row.gold})` : `${row.read} (gold ${row.gold})`;
    const gold = row.pairs.filter(([each]) => each);
    const right = row.pairs.filter((pair) => judged(pair) === "right");
    const more = row.pairs.length - gold.length + row.invented.length;
    return `${right.length} of ${gold.length} found` + (more ? `, ${more} too many` : "");
  }

  function showList() {
    const all = page.of < about.n ? ` inside this page (${many(about.n)} in all)` : "";
    section.querySelector(".count").textContent = `${many(page.matched)} of ${many(page.of)} samples${all}`;
    list.replaceChildren(
      ...page.rows.map((row, at) => {
        const mark = make("span", { class: `verdict ${row.outcomes[0]}` }, outcomeMark(row, true));
        const head = make("span", { class: "head" }, make("span", { class: "id" }, text(row.id)), make("span", {}, mark, " ", gist(row)));
        const line = make("span", { class: "line", dir: "auto" }, text(beginning(row.text, 160)));
        const chosen = row.id === current;
        const item = make("li", { role: "option", id: `row-${at}`, "aria-selected": chosen }, head, line);
        item.addEventListener("click", () => {
          choose(row.id, "pushState");
          if (article.getBoundingClientRect().top > innerHeight / 2) article.scrollIntoView();
        });
        return item;
      }),
    );
    const at = page.rows.findIndex((row) => row.id === current);
    if (at < 0) list.removeAttribute("aria-activedescendant");
    else {
      list.setAttribute("aria-activedescendant", `row-${at}`);
      const item = list.children[at];
      const outside = item.offsetTop < list.scrollTop || item.offsetTop + item.offsetHeight > list.scrollTop + list.clientHeight;
      if (outside) list.scrollTop = item.offsetTop - list.clientHeight / 2;
    }
    const last = Math.min(page.offset + PAGE, page.matched);
    section.querySelector(".place").textContent = page.matched ? `${many(page.offset + 1)} to ${many(last)}` : "";
    section.querySelector(".earlier").disabled = page.offset === 0;
    section.querySelector(".later").disabled = last >= page.matched;
  }

  // --- text ---

  // C0 but for tab and newline, DEL, C1, what embeds or overrides a direction, what has no width and joins nothing,
  // halves of surrogate pairs. Joiners stay: Indic scripts need them.
  const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b\u202a-\u202e\u2060-\u2069\ufeff]|\p{Cs}/gu;
  const SPECIAL = /<\|[^|<>\n]{1,40}\|>|<\/?s>|<(?:start|end)_of_turn>|<(?:bos|eos)>|\[\/?INST\]/g;

  function escaped(character) {
    const code = character.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
  }

  // Splits by a pattern: what matches becomes an element.
  function* marked(string, pattern, element, rest) {
    let from = 0;
    for (const match of string.matchAll(pattern)) {
      yield* rest(string.slice(from, match.index));
      yield element(match[0]);
      from = match.index + match[0].length;
    }
    yield* rest(string.slice(from));
  }

  function* plain(string) {
    const escape = (found) => make("span", { class: "escape", title: "a character that is not shown" }, escaped(found));
    yield* marked(string, STEERING, escape, function* (part) {
      if (part) yield part;
    });
  }

  // A text as nodes; what was searched for is marked, and a chat template's own tokens are, where there are any.
  function text(string, special = false) {
    const nodes = document.createDocumentFragment();
    const sought = wanted.get("q");
    const pattern = sought && new RegExp(sought.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
    const tokens = (part) => (special ? marked(part, SPECIAL, (found) => make("span", { class: "special" }, found), plain) : plain(part));
    const hit = (found) => make("mark", { class: "hit" }, ...plain(found));
    nodes.append(...(pattern ? marked(string, pattern, hit, tokens) : tokens(string)));
    return nodes;
  }

  // A field of a row; where something of it is left out, that is said in its place.
  function field(row, name, special) {
    const [at, number] = row.left_out?.[name] ?? [];
    if (number === undefined) return [text(row[name], special)];
    const told = make("span", { class: "left-out" }, ` … ${many(number)} characters left out here; the run folder has all … `);
    return [text(row[name].slice(0, at), special), told, text(row[name].slice(at), special)];
  }

  function block(row, title, name, special) {
    const pre = make("pre", { dir: "auto", class: row[name].length < 1500 ? "short" : "long" }, ...field(row, name, special));
    if (!row[name]) return [make("h4", {}, title), make("p", { class: "quiet" }, "empty")];
    const copy = make("button", { type: "button", "aria-label": `Copy: ${title}` }, "Copy");
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(row[name]);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(pre);
        copy.textContent = "Selected";
      }
    });
    return [make("div", { class: "bar" }, make("h4", {}, title), copy), pre];
  }

  // --- one sample ---

  function showSample(row) {
    section.toggleAttribute("data-chosen", new URLSearchParams(location.hash.slice(1)).has("sample")); // what is printed
    if (!row) {
      const why = current === null ? "No sample is like this." : "This sample is not inside this page: localeval view RUN_DIR has all of them.";
      article.replaceChildren(make("p", { class: "quiet" }, why));
      return;
    }
    const verdict = make("span", { class: `verdict ${row.outcomes[0]}` }, outcomeMark(row));
    const tags = row.outcomes.slice(1).filter((name) => name !== "unparsed" && !about.reasons[name]);
    const button = (step, name, key) => {
      const made = make("button", { type: "button", "aria-keyshortcuts": key }, name);
      made.addEventListener("click", () => move(step));
      return made;
    };
    const header = make(
      "header", {},
      make("h3", {}, text(row.id), " ", verdict, ...tags.flatMap((name) => [" ", make("span", { class: "tag" }, name)])),
      make("span", { class: "screen" }, button(-1, "Previous", "k"), " ", button(1, "Next", "j")),
    );
    const groups = Object.entries(row.groups).map(([name, value]) => `${name}: ${value}`);
    const asked = row.asked ? [`${many(row.asked)} + ${many(row.said)} tokens`] : [];
    const facts = [row.subset, ...groups, `ended: ${row.finish}`, ...asked].join(" · ");
    article.replaceChildren(
      header,
      make("p", { class: "quiet small", dir: "auto" }, text(facts)),
      ...(row.tokens ? entities(row) : options(row)),
      ...block(row, "Reply", "reply"),
      ...block(row, row.rendered ? "Prompt, as the model was given it" : "Message (replayed: the prompt around it is not known)", "prompt", true),
    );
  }

  const why = (said, row) => `${[said, ...(reason(row) ?? []).slice(1)].join(": ")}.`;

  function options(row) {
    const rows = row.choices.map((choice, at) => {
      const letter = String.fromCharCode(65 + at);
      const marks = [...(letter === row.gold ? ["gold"] : []), ...(letter === row.read ? [letter === row.gold ? "✓ answered" : "✗ answered"] : [])];
      return make(
        "tr", { class: letter === row.gold ? "gold" : "" },
        make("th", { scope: "row", class: "letter" }, letter),
        make("td", { dir: "auto" }, text(choice), ...marks.flatMap((mark) => [" ", make("span", { class: "tag" }, mark)])),
        ...(row.probabilities || row.likelihoods ? [share(row, letter)] : []),
      );
    });
    const heads = ["", "option", ...(row.probabilities ? ["among the options (of all tokens)"] : row.likelihoods ? ["likelihood per character"] : [])];
    const table = make(
      "table", { class: "options" },
      make("caption", { class: "unseen" }, "Options"),
      make("thead", {}, make("tr", {}, ...heads.map((name) => make(name ? "th" : "td", name ? { scope: "col" } : {}, name)))),
      make("tbody", {}, ...rows),
    );
    const forced = row.forced ? ` Forced answer: ${row.forced[0]} (${row.forced[0] === row.gold ? "right" : "wrong"}), probability ${row.forced[1].toFixed(4)}.` : "";
    const read = row.read === null && !row.outcomes.includes("right") ? [make("p", {}, make("strong", {}, why("No answer could be read", row)), forced)] : [];
    return [make("p", { class: "question", dir: "auto" }, ...field(row, "text")), table, ...read];
  }

  function share(row, letter) {
    const [among, of] = row.probabilities ? row.probabilities[letter] : [row.likelihoods[letter]];
    const bar = make("span");
    bar.style.width = `${100 * among}%`;
    const numbers = of === undefined ? among.toFixed(4) : `${among.toFixed(4)} (${of.toFixed(4)})`;
    return make("td", { class: "share" }, make("span", { class: "meter", "aria-hidden": "true" }, bar), numbers);
  }

  // --- entities ---

  function judged([gold, read]) {
    if (!read) return "missed";
    if (!gold) return "spurious";
    const ends = gold[1] === read[1] && gold[2] === read[2];
    if (gold[0] === read[0]) return ends ? "right" : "wrong ends";
    return ends ? "wrong type" : "wrong type and ends";
  }

  function entities(row) {
    const words = ([, start, end]) => row.tokens.slice(start, end).join(" ");
    const unread = row.outcomes.includes("unparsed");
    const read = unread
      ? [make("em", {}, why("could not be read", row), " No entity, every token counts as wrong.")]
      : sentence(row, 1);
    const cell = (span) => (span ? [entity(text(words(span)), span[0])] : ["–"]);
    const rows = row.pairs.map((pair) => [cell(pair[0]), cell(pair[1]), judged(pair)]);
    for (const [label, name] of row.invented) rows.push([["–"], [entity(text(name), label)], "invented: not in the sentence"]);
    const table = make(
      "table", {},
      make("caption", { class: "unseen" }, "Entities"),
      make("thead", {}, make("tr", {}, ...["gold", "read", "verdict"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows.map(([gold, said, verdict]) =>
        make("tr", {}, make("td", { dir: "auto" }, ...gold), make("td", { dir: "auto" }, ...said),
          make("td", { class: `verdict ${verdict === "right" ? "right" : "wrong"}` }, verdict === "right" ? "✓ right" : `✗ ${verdict}`)))),
    );
    return [
      make("p", { class: "sentence", dir: "auto" }, make("span", { class: "whose" }, "gold"), make("span", {}, ...sentence(row, 0))),
      make("p", { class: "sentence", dir: "auto" }, make("span", { class: "whose" }, "read"), make("span", {}, ...read)),
      rows.length ? make("div", { class: "wide" }, table) : make("p", { class: "quiet" }, "No entity in the gold, none in the reply."),
    ];
  }

  function entity(content, label, why = "") {
    const kind = Math.max(0, about.types.indexOf(label)) % 12;
    const signs = [make("span", { class: "label" }, text(label)), ...(why ? [make("span", { class: "why" }, `✗ ${why}`)] : [])];
    return make("span", { class: `entity kind-${kind}${why ? " off" : ""}` }, content, ...signs);
  }

  // The tokens, with the entities of one side marked; side: 0 gold, 1 read.
  function sentence(row, side) {
    const pairs = row.pairs.filter((pair) => pair[side]).sort((a, b) => a[side][1] - b[side][1]);
    const nodes = [];
    let at = 0;
    for (const pair of pairs) {
      const [label, start, end] = pair[side];
      if (start > at) nodes.push(text(row.tokens.slice(at, start).join(" ")), " ");
      const why = judged(pair);
      nodes.push(entity(text(row.tokens.slice(start, end).join(" ")), label, why === "right" ? "" : why), " ");
      at = end;
    }
    nodes.push(text(row.tokens.slice(at).join(" ")));
    return nodes;
  }

  // --- what the reader does ---

  function filtered(how) {
    wanted = new Map();
    if (form.q.value) wanted.set("q", form.q.value);
    for (const { name, selectedIndex: at } of filters) if (at > 0) wanted.set(name, about.choices[name][at - 1]);
    current = null;
    write(how);
    show(0);
  }

  let pause;
  form.q.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => filtered("replaceState"), 150);
  });
  for (const filter of filters) filter.addEventListener("change", () => filtered("pushState"));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => filtered("pushState")));
  section.querySelector(".earlier").addEventListener("click", () => show(page.offset - PAGE));
  section.querySelector(".later").addEventListener("click", () => show(page.offset + PAGE));

  const KEYS = {
    j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    "/": () => form.q.focus(), Enter: () => article.focus(), Escape: () => list.focus(),
  };
  // Only inside this section: single keys must not act where a reader, or a screen reader, is elsewhere (WCAG 2.1.4).
  section.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input, select, button, summary, a");
    const only = event.key.startsWith("Arrow") || event.key === "Enter" ? event.target === list : !typing || event.key === "Escape";
    if (!only || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });

  async function arrive() {
    if (!ours() && location.hash !== "") return; // a part of the page
    read();
    if (!ours()) return show(0);
    const chosen = current !== null;
    await Promise.all([show(0, current), window.drawn]); // charts above move what is below
    (chosen ? article : section).scrollIntoView();
    (chosen ? article : list).focus({ preventScroll: true });
  }

  addEventListener("hashchange", arrive);
  if (ours()) arrive();
  else show(0);
}

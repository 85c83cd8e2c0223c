// The lens: what is chosen, how it is chosen (clicks, keys, selects, the address), and the cards that show it.

(async () => {
  const root = document.getElementById("lens-root");
  if (!root) return;
  if (typeof DecompressionStream === "undefined") {
    root.replaceChildren(element("p", { class: "slot" }, "This browser cannot unpack the maps of the lens: any browser from 2023 on can."));
    return;
  }
  const about = JSON.parse(document.getElementById("lens-about").textContent);
  const models = await Promise.all(about.models.map((model, i) => unpack(i, model, about.ids.length, about.budgets.length)));
  const grid = models[0].patches; // the query is kept in patches of the first model
  const initial = { ...about.start, layer: 0, head: null, query: models[0].class_tokens ? null : { row: 0, column: 0 }, left: 0, right: Math.min(1, models.length - 1), hover: null };
  const scaled = (place, model) => ({ row: Math.floor((place.row + 0.5) * model.patches / grid), column: Math.floor((place.column + 0.5) * model.patches / grid) });
  const lens = {
    ...initial,
    queryOf: (model) => (lens.query === null ? null : scaled(lens.query, model)),
    hoverOf: (model) => scaled(lens.hover, model),
    queryWords: (model) => (lens.query === null ? "the class token" : `the patch in ${patchName(lens.queryOf(model))}`),
  };
  const deepest = Math.max(...models.map((model) => model.layers.length));
  const mostHeads = Math.max(...models.flatMap((model) => model.layers.map((layer) => layer.heads)));
  const queries = [...(models[0].class_tokens ? [null] : []), ...Array.from({ length: grid * grid }, (_, k) => ({ row: Math.floor(k / grid), column: k % grid }))];
  const heads = [null, ...Array(mostHeads).keys()];

  // --------------------------------------------------------------------------------------------- the address

  const written = () => {
    const words = {
      image: about.ids[lens.image], eps: about.budgets[lens.budget].text, layer: lens.layer + 1, head: lens.head === null ? "mean" : lens.head + 1,
      query: lens.query === null ? "class" : `${lens.query.row + 1}.${lens.query.column + 1}`, left: models[lens.left].name, ...(models.length > 1 ? { right: models[lens.right].name } : {}),
    };
    return `#lens?${Object.entries(words).map(([key, value]) => `${key}=${encodeURIComponent(value).replaceAll("%2F", "/")}`).join("&")}`;
  };

  // What the address names and the lens has; anything else stays as it is.
  const read = () => {
    if (!location.hash.startsWith("#lens?")) return false;
    const words = new URLSearchParams(location.hash.slice(6));
    const within = (value, end) => Number.isInteger(value) && value >= 0 && value < end;
    const choose = (key, value, end) => { if (within(value, end)) lens[key] = value; };
    choose("image", about.ids.indexOf(Number(words.get("image") ?? NaN)), about.ids.length);
    choose("budget", about.budgets.findIndex((budget) => budget.text === words.get("eps")), about.budgets.length);
    choose("layer", Number(words.get("layer")) - 1, deepest);
    if (words.get("head") === "mean") lens.head = null; else choose("head", Number(words.get("head")) - 1, mostHeads);
    if (words.get("query") === "class" && models[0].class_tokens) lens.query = null;
    const place = /^(\d+)\.(\d+)$/.exec(words.get("query") ?? "");
    if (place && within(place[1] - 1, grid) && within(place[2] - 1, grid)) lens.query = { row: place[1] - 1, column: place[2] - 1 };
    for (const side of ["left", "right"]) choose(side, models.findIndex((model) => model.name === words.get(side)), models.length);
    return true;
  };

  // --------------------------------------------------------------------------------------------- controls

  const selectOf = (name, key, options, text) => {
    const select = element("select", { "data-choice": key }, ...options.map((option, i) => element("option", { value: i }, text(option, i))));
    select.addEventListener("change", () => change({ [key]: options[select.value] }));
    selects.push(() => { select.value = options.findIndex((option) => same(option, lens[key])); });
    return element("label", {}, name, select);
  };
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const selects = [];
  const numbers = (n) => [...Array(n).keys()];

  const thumbs = element("div", { class: "thumbs", role: "group", "aria-label": "Image" }, ...about.ids.map((id, i) => {
    const canvas = element("canvas", { "aria-hidden": "true" });
    drawPixels(canvas, models[0].pixels, (k) => models[0].image(i)[k]);
    const label = about.classes[about.labels[i]];
    const button = element("button", { type: "button", class: "thumb", "aria-label": `Image ${i + 1} of ${about.ids.length}: ${label}`, title: `${label}, id ${id}` }, canvas, label);
    button.addEventListener("click", () => change({ image: i }));
    selects.push(() => button.setAttribute("aria-pressed", String(lens.image === i)));
    return button;
  }));
  const copy = element("button", { type: "button", class: "tool" }, "Copy link to this view");
  copy.addEventListener("click", async () => {
    history.replaceState(null, "", written());
    let done = "The address bar holds the link";
    try { await navigator.clipboard.writeText(location.href); done = "Copied"; } catch { /* no permission: the address is there all the same */ }
    copy.textContent = done;
    setTimeout(() => { copy.textContent = "Copy link to this view"; }, 2000);
  });
  const modelNames = numbers(models.length);
  const controls = element("div", { class: "lens-controls" }, thumbs, element("div", { class: "choices" },
    selectOf("budget of the attack", "budget", numbers(about.budgets.length), (i) => about.budgets[i].text),
    selectOf("query", "query", queries, (query) => (query === null ? "class token" : patchName(query))),
    deepest > 1 ? selectOf("layer", "layer", numbers(deepest), (i) => String(i + 1)) : null,
    mostHeads > 1 ? selectOf("head", "head", heads, (head) => (head === null ? "mean of heads" : String(head + 1))) : null,
    ...(models.length > 2 ? [selectOf("left model", "left", modelNames, (i) => models[i].name), selectOf("right model", "right", modelNames, (i) => models[i].name)] : []), copy));
  const state = element("p", { class: "state", role: "status", "aria-live": "polite" });
  const looks = element("div", { class: "looks" });
  const tip = element("div", { class: "tip", hidden: "" });
  const key = (text) => element("kbd", {}, text);
  const keys = element("p", { class: "keys" }, "Keys: ", key("←"), " ", key("↑"), " ", key("↓"), " ", key("→"), " move the query, ", key("c"), " class token, ", key("n"), " ", key("p"), " next and previous image, ",
    key("b"), " budget, ", key("l"), " layer, ", key("h"), " head (with Shift: back). They work while something in the lens has the focus: click a patch first.");
  const pooled = models.filter((model) => model.pooled > 1).map((model) => `${model.name}: ${model.pooled} × ${model.pooled} patches are shown as one.`);
  const small = element("p", { class: "note" }, `${about.attack}. Images are from ${about.data.name}, ${about.data.split}. Numbers at maps are shares of the query's attention. Clean and attacked share a scale, which begins at the smallest share; the change has its own. cls: the class token. `
    + `Maps are kept in 8 bits: a value is off by at most 0.2 % of the largest in its row. ${pooled.join(" ")}`);
  root.replaceChildren(controls, state, looks, keys, small, tip);

  // --------------------------------------------------------------------------------------------- showing

  let cards = [];
  const render = () => {
    const shown = models.length === 1 ? [models[0]] : [models[lens.left], models[lens.right]].filter((model, i, all) => all.indexOf(model) === i);
    if (!same(cards.map(({ model }) => model.number), shown.map((model) => model.number))) {
      cards = shown.map((model) => cardOf(model, about, lens));
      looks.replaceChildren(...cards.map(({ card }) => card));
    }
    const focused = document.activeElement?.dataset?.kind ? [cards.findIndex(({ card }) => card.contains(document.activeElement)), document.activeElement.dataset.state] : null;
    cards.forEach((card) => card.render());
    if (focused && focused[0] >= 0) cards[focused[0]].views.find((view) => view.kind === "pixels" && view.state === focused[1])?.canvas.focus({ preventScroll: true });
    selects.forEach((update) => update());
    const label = about.classes[about.labels[lens.image]];
    state.textContent = `Image ${lens.image + 1} of ${about.ids.length} (${label}), attacked within ${about.budgets[lens.budget].text}, seen from ${lens.queryWords(models[0])}. ${cards.map((card) => card.summary()).join(" ")}`;
  };
  const change = (what) => {
    Object.assign(lens, what);
    render();
    history.replaceState(null, "", written());
  };
  const step = (key, end, back) => change({ [key]: (lens[key] + (back ? end - 1 : 1)) % end });

  // --------------------------------------------------------------------------------------------- hands

  const under = (event) => {
    const canvas = event.target.closest?.(".view canvas");
    if (!canvas) return null;
    const found = cards.find(({ card }) => card.contains(canvas));
    const box = canvas.getBoundingClientRect();
    const place = (at, from, size) => Math.min(Math.max(Math.floor((at - from) / size * found.model.patches), 0), found.model.patches - 1);
    return { canvas, model: found.model, row: place(event.clientY, box.top, box.height), column: place(event.clientX, box.left, box.width) };
  };
  const onGrid = ({ model, row, column }) => ({ row: Math.floor((row + 0.5) * grid / model.patches), column: Math.floor((column + 0.5) * grid / model.patches) });

  looks.addEventListener("click", (event) => {
    const found = under(event);
    if (!found) return;
    const card = cards.findIndex(({ card }) => card.contains(found.canvas));
    change({ query: onGrid(found) });
    cards[card].views[0].canvas.focus({ preventScroll: true });
  });
  looks.addEventListener("pointermove", (event) => {
    const found = under(event);
    const hover = found ? onGrid(found) : null;
    if (!same(hover, lens.hover)) {
      lens.hover = hover;
      cards.forEach((card) => card.mark());
    }
    tip.hidden = !found;
    if (!found) return;
    const { kind, state: shown } = found.canvas.dataset;
    const value = found.canvas.cells?.[found.row * found.model.patches + found.column];
    tip.textContent = `${patchName(found)}` + (value === undefined ? ` of the ${shown === "change" ? "perturbation" : "image"}` : `: ${NAMES[kind]} ${shown} ${shown === "change" && value > 0 ? "+" : ""}${share(value)} %`);
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + (event.clientY > innerHeight - 60 ? -40 : 18)}px`;
  });
  looks.addEventListener("pointerleave", () => {
    lens.hover = null;
    tip.hidden = true;
    cards.forEach((card) => card.mark());
  });
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const back = event.shiftKey;
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      const from = lens.query ?? { row: down < 0 ? grid : down > 0 ? -1 : 0, column: right < 0 ? grid : right > 0 ? -1 : 0 }; // from the class token onto the image
      const held = (at) => Math.min(Math.max(at, 0), grid - 1);
      change({ query: { row: held(from.row + down), column: held(from.column + right) } });
    } else if (event.key === "c" && models[0].class_tokens) change({ query: null });
    else if (event.key === "n") step("image", about.ids.length, false);
    else if (event.key === "p") step("image", about.ids.length, true);
    else if (event.key.toLowerCase() === "b") step("budget", about.budgets.length, back);
    else if (event.key.toLowerCase() === "l") step("layer", deepest, back);
    else if (event.key.toLowerCase() === "h") {
      const at = heads.indexOf(lens.head);
      change({ head: heads[(at + (back ? heads.length - 1 : 1)) % heads.length] });
    } else return;
    event.preventDefault();
  });
  addEventListener("hashchange", () => { if (read()) render(); });
  theme.onChange(() => cards.forEach((card) => card.mark()));

  const asked = read();
  render();
  if (asked) document.getElementById("lens").scrollIntoView({ behavior: "instant" });
  root.dataset.ready = "yes";
})();

// One model under the lens: its image and maps, clean, attacked and the change; what it predicts; what its branches do.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
};
const vector = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
};
const number = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"));
// Shares of attention, in per cent: two digits that count, or a tenth.
const share = (value) => {
  const size = Math.abs(100 * value);
  const text = size === 0 ? "0" : size >= 10 ? (100 * value).toFixed(1) : size >= 0.0095 ? (100 * value).toPrecision(2) : (100 * value).toExponential(0);
  return text.replace("-", "−");
};
const percent = (p) => `${(100 * p).toFixed(p > 0.995 && p < 1 ? 1 : 0)} %`;
const patchName = ({ row, column }) => `row ${row + 1}, column ${column + 1}`;
const NAMES = { pixels: "image", A: "A", A1: "A1", A2: "A2", DA: "A1 − λA2" };
const STATES = ["clean", "attacked", "change"];

// What a card shows in the state of the lens; `about` is the whole lens.
function cardOf(model, about, lens) {
  const colour = `m${model.place % 6}`;
  const card = element("article", { class: `look ${colour}` });
  const views = []; // {canvas, kind, state, draw}

  function render() {
    const layerNumber = Math.min(lens.layer, model.layers.length - 1);
    const layer = model.layers[layerNumber];
    const head = lens.head === null ? null : Math.min(lens.head, layer.heads - 1);
    const query = lens.queryOf(model);
    const token = query === null ? 0 : model.class_tokens + query.row * model.patches + query.column;
    const [clean, attacked] = [0, lens.budget + 1].map((state) => model.maps(layerNumber, state, lens.image, head, token));
    views.length = 0;
    const kinds = element("div", { class: "kinds" }, imageColumn(), ...Object.keys(clean).map((kind) => mapColumn(kind, clean[kind], attacked[kind], layer)));
    const told = element("div", { class: "told" }, guesses(), ...(layer.branches === 2 ? [geometry(layerNumber, head, layer)] : []));
    card.className = `look ${colour} ${layer.branches === 2 ? "two" : "one"}`;
    if (layer.branches === 1) kinds.append(element("p", { class: "absent" }, "A softmax layer has one map a head: no λ, and no second branch that it could be aligned with."));
    card.replaceChildren(element("h3", {}, model.name), which(layerNumber, head, layer), kinds, told);
    mark();
  }

  function which(layerNumber, head, layer) {
    const words = [model.title, `layer ${layerNumber + 1} of ${model.layers.length}`];
    if (lens.layer > layerNumber) words[1] += ` (it has no layer ${lens.layer + 1})`;
    words.push(head === null ? `mean of ${layer.heads} ${layer.heads === 1 ? "head" : "heads"}` : `head ${head + 1} of ${layer.heads}`);
    if (head !== null && lens.head > head) words[2] += ` (it has no head ${lens.head + 1})`;
    if (layer.branches === 2) words.push(layer.maps ? `mean λ = ${number(layer.lambda)}` : `λ = ${number(layer.lambda)}`);
    return element("p", { class: "which" }, words.join(" · "));
  }

  // ------------------------------------------------------------------------------------------- pictures

  function view(kind, state, beneath, alt, draw) {
    const canvas = element("canvas", { role: "img", "aria-label": alt, "data-kind": kind, "data-state": state });
    if (kind === "pixels" && state !== "change") canvas.tabIndex = 0;
    views.push({ canvas, kind, state, draw });
    return element("figure", { class: "view", style: `grid-area: ${state}` }, element("figcaption", {}, state), canvas, element("p", { title: beneath }, beneath));
  }

  function imageColumn() {
    const pixels = model.image(lens.image);
    const budget = about.budgets[lens.budget];
    const change = model.change(lens.image, lens.budget);
    const factor = 0.5 / budget.eps;
    const label = about.classes[about.labels[lens.image]];
    const seen = (state) => {
      const [guess, p] = model.predictions[state][lens.image][0];
      const right = guess === about.labels[lens.image];
      return { words: `${right ? "✓" : "✗"} ${percent(p)} ${about.classes[guess]}`, alt: `predicted ${about.classes[guess]} at ${percent(p)}, ${right ? "right" : "wrong"}` };
    };
    const [before, after] = [seen(0), seen(lens.budget + 1)];
    return element("div", { class: "kind" }, element("h4", {}, "image"), element("div", { class: "views" },
      view("pixels", "clean", before.words, `Image of ${label}, clean: ${before.alt}`,
        (canvas) => drawPixels(canvas, model.pixels, (i) => pixels[i])),
      view("pixels", "attacked", after.words, `The same image attacked within ${budget.text}: ${after.alt}`,
        (canvas) => drawPixels(canvas, model.pixels, (i) => pixels[i] + 255 * budget.eps * change[i] / 127)),
      element("p", { class: "legend empty", style: "grid-area: shared", "aria-hidden": "true" }, element("i"), element("span", {}, "·")),
      view("pixels", "change", `× ${factor.toPrecision(3)}`, `The perturbation, amplified ${factor.toPrecision(3)} times about mid-grey`,
        (canvas) => drawPixels(canvas, model.pixels, (i) => 127.5 + 127.5 * change[i] / 127)),
      legend("own", "grey", [`−${budget.text.replace("/255", "")}`, "0", budget.text])));
  }

  function mapColumn(kind, clean, attacked, layer) {
    const patches = (tokens) => tokens.subarray(model.class_tokens);
    const change = attacked.map((value, k) => value - clean[k]);
    const both = [...patches(clean), ...patches(attacked)];
    const [low, top] = [Math.min(...both), Math.max(...both)];
    const [size, reach] = [both, [...patches(change)]].map((all) => Math.max(...all.map(Math.abs)));
    const colourOf = (v) => (signed ? diverging(v, size) : sequential(v - low, top - low));
    const signed = kind === "DA";
    const name = kind === "DA" ? (layer.maps ? "A1 − λ A2" : `A1 − ${number(layer.lambda, 2)} A2`) : NAMES[kind];
    const made = (state, tokens, colour) => {
      const cells = patches(tokens);
      const strongest = cells.reduce((best, value, k) => (Math.abs(value) > Math.abs(cells[best]) ? k : best), 0);
      const where = patchName({ row: Math.floor(strongest / model.patches), column: strongest % model.patches });
      const toClass = model.class_tokens ? `to cls ${share(tokens[0])} %` : "";
      const alt = `${name}, ${state}, seen from ${lens.queryWords(model)}: strongest at ${where} with ${share(cells[strongest])} %`
        + (model.class_tokens ? `; to the class token ${share(tokens[0])} %` : "");
      return view(kind, state, toClass, alt, (canvas) => {
        drawMap(canvas, model.patches, cells, colour);
        canvas.cells = cells;
      });
    };
    return element("div", { class: "kind" }, element("h4", {}, name), element("div", { class: "views" },
      made("clean", clean, colourOf), made("attacked", attacked, colourOf),
      signed ? legend("shared", "div", ends(size)) : legend("shared", "seq", [share(low), `${share(top)} %`]),
      made("change", change, (v) => diverging(v, reach)), legend("own", "div", ends(reach))));
  }

  const ends = (reach) => [`−${bare(reach)}`, "0", `${bare(reach)} %`];
  const bare = (value) => share(value).replace(/^0\./, ".");

  function legend(area, scale, ends) {
    return element("p", { class: `legend ${scale}`, style: `grid-area: ${area}` }, element("i"), element("span", {}, ...ends.map((end) => element("span", {}, end))));
  }

  // Everything drawn anew with the query's box and that of the patch under the pointer.
  function mark() {
    for (const { canvas, draw } of views) {
      draw(canvas);
      const query = lens.queryOf(model);
      if (query !== null) drawBox(canvas, model.patches, query, false);
      if (lens.hover !== null) drawBox(canvas, model.patches, lens.hoverOf(model), true);
    }
  }

  // ------------------------------------------------------------------------------------------- words and numbers

  function guesses() {
    const list = (state, title) => element("div", {}, element("h4", {}, title), ...model.predictions[state][lens.image].map(([guess, p]) =>
      element("div", { class: "guess" }, element("span", { title: about.classes[guess] }, about.classes[guess]), element("i", { style: `width: ${(100 * p).toFixed(1)}%` }), element("span", {}, percent(p)))));
    return element("div", { class: "guesses" }, list(0, "predicted, clean"), list(lens.budget + 1, `attacked within ${about.budgets[lens.budget].text}`));
  }

  function geometry(layerNumber, head, layer) {
    const numbers = (of, state) => model.branches[layerNumber][of]?.[state]?.[lens.image]?.[head === null ? 0 : head + 1] ?? [];
    const lines = [["gradients, clean", numbers("jacobians", 0)], ["gradients, attacked", numbers("jacobians", lens.budget + 1)], ["changes of maps", numbers("changes", lens.budget + 1)]];
    const third = layer.maps && lines.some(([, values]) => typeof values[6] === "number"); // through λ, or DINT's mean
    const titles = ["", "cos", "energy", "× angle", ...(third ? ["× third"] : []), "= ampl."];
    const table = element("table", {}, element("caption", { class: "hidden" }, `Alignment of the two branches of ${model.name}`),
      element("thead", {}, element("tr", {}, ...titles.map((title) => element(title ? "th" : "td", title ? { scope: "col" } : {}, title)))),
      element("tbody", {}, ...lines.map(([name, [cos, error, , amplification, energy, angle, factor]]) => element("tr", {}, element("th", { scope: "row" }, name),
        element("td", { title: error ? `standard error ${number(error)}` : "" }, (cos > 0 ? "+" : "") + number(cos, 2)), ...[energy, angle, ...(third ? [factor] : []), amplification].map((value) => element("td", {}, number(value, 2)))))));
    const [cos, , rho] = numbers("jacobians", lens.budget + 1);
    const what = head === null ? "all heads stacked" : `head ${head + 1}`;
    return element("div", {}, element("h4", {}, `The two branches, ${what}`), element("div", { class: third ? "geometry stacked" : "geometry" }, table, arrows(cos, (layer.maps ? 1 : layer.lambda) * rho)),
      element("p", { class: "meaning" }, "cos < 0: the branches react against each other. Amplification > 1: A1 − λA2 reacts more than A1 alone."
        + (third ? " Third: what the change of λ itself (or of DINT's mean) does to it." : "")));
  }

  // J1, λ J2 and their difference at the angle between them, as in the paper's first figure.
  function arrows(cos, kappa) {
    const drawing = vector("svg", { viewBox: "0 0 150 112", role: "img" });
    if (cos === null || cos === undefined) {
      drawing.setAttribute("aria-label", "No angle: a branch does not react here.");
      return drawing;
    }
    const theta = Math.acos(Math.min(1, Math.max(-1, cos)));
    const ends = { "J1": [1, 0], "λJ2": [kappa * Math.cos(theta), kappa * Math.sin(theta)] };
    ends["J1 − λJ2"] = [ends.J1[0] - ends["λJ2"][0], ends.J1[1] - ends["λJ2"][1]];
    const xs = [0, ...Object.values(ends).map(([x]) => x)], ys = [0, ...Object.values(ends).map(([, y]) => y)];
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = Math.min(100 / (right - left), 72 / Math.max(high - low, 1e-6));
    const at = ([x, y]) => [75 + (x - (left + right) / 2) * scale, 54 - (y - (low + high) / 2) * scale];
    const [ox, oy] = at([0, 0]);
    drawing.setAttribute("aria-label", `Gradients at the attacked image: J1 and λJ2 at ${Math.round(theta * 180 / Math.PI)} degrees, λJ2 ${number(Math.abs(kappa), 2)} times as long as J1.`);
    Object.entries(ends).forEach(([name, end], i) => {
      const [x, y] = at(end);
      const style = ["var(--ink)", "var(--soft)", "var(--own)"][i];
      const long = Math.hypot(x - ox, y - oy) || 1;
      const [ux, uy] = [(x - ox) / long, (y - oy) / long];
      drawing.append(vector("line", { x1: ox, y1: oy, x2: x - 5 * ux, y2: y - 5 * uy, style: `stroke: ${style}`, ...(i === 1 ? { "stroke-dasharray": "5 3" } : {}) }));
      drawing.append(vector("polygon", { points: `${x},${y} ${x - 9 * ux + 4 * uy},${y - 9 * uy - 4 * ux} ${x - 9 * ux - 4 * uy},${y - 9 * uy + 4 * ux}`, style: `fill: ${style}` }));
      const tx = Math.min(Math.max(x + 7 * ux, 12), 138), below = uy > 0.2 || (i === 0 && Math.abs(uy) <= 0.2);
      drawing.append(vector("text", { x: tx, y: Math.min(Math.max(y + (below ? 15 : -5), 12), 108), "text-anchor": tx > 100 ? "end" : tx < 50 ? "start" : "middle" }, name));
    });
    return drawing;
  }

  const summary = () => {
    const name = (state) => { const [guess, p] = model.predictions[state][lens.image][0]; return `${about.classes[guess]} at ${percent(p)}`; };
    return `${model.name}: ${name(0)} becomes ${name(lens.budget + 1)}.`;
  };
  return { card, model, render, mark, summary, views };
}

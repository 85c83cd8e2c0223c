// The packed bytes of a model, and what can be read from them. Their order is that of results/look.py.
// Tokens of a map: the class token first, if there is one, then the patches row by row.

async function unpack(number, model, images, budgets) {
  const text = atob(document.getElementById(`lens-packed-${number}`).textContent);
  const packed = Uint8Array.from(text, (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  const [height, width, channels] = model.pixels;
  const pixels = height * width * channels;
  const states = budgets + 1;
  const tokens = model.patches ** 2 + model.class_tokens;
  let at = 0;
  const take = (length) => { at += length; return at - length; };

  const clean = new Uint8Array(bytes, take(images * pixels), images * pixels);
  const changes = Array.from({ length: budgets }, () => new Int8Array(bytes, take(images * pixels), images * pixels));
  const layers = model.layers.map((layer) => {
    const rows = images * (layer.maps ?? layer.branches) * layer.heads * tokens;
    const levels = new Uint8Array(bytes, take(states * rows * tokens), states * rows * tokens);
    for (let i = rows * tokens; i < levels.length; i++) levels[i] += levels[i - rows * tokens]; // modulo 256
    const scales = new Float32Array(bytes.slice(take(4 * rows), at)); // a copy: floats must lie at a multiple of four
    return { ...layer, levels, scales, rows };
  });

  const image = (which) => clean.subarray(which * pixels, (which + 1) * pixels);
  const change = (which, budget) => changes[budget].subarray(which * pixels, (which + 1) * pixels);

  // One row of a map: how much the query attends to each token. Head null: the mean over heads.
  const row = (layerNumber, state, which, branch, head, query) => {
    const layer = layers[layerNumber];
    const heads = head === null ? [...Array(layer.heads).keys()] : [head];
    const found = new Float64Array(tokens);
    for (const h of heads) {
      const line = ((which * (layer.maps ?? layer.branches) + branch) * layer.heads + h) * tokens + query;
      const start = (state * layer.rows + line) * tokens;
      for (let k = 0; k < tokens; k++) found[k] += layer.scales[line] * layer.levels[start + k] / 255 / heads.length;
    }
    return found;
  };

  // The maps that a layer has, by name, in the order in which they are shown.
  const maps = (layerNumber, state, which, head, query) => {
    const layer = layers[layerNumber];
    const first = row(layerNumber, state, which, 0, head, query);
    if (layer.branches === 1) return { A: first };
    const second = row(layerNumber, state, which, 1, head, query);
    if (!layer.maps) return { A1: first, A2: second, DA: first.map((a, k) => a - layer.lambda * second[k]) };
    const [taken, given] = [2, 3].map((part) => row(layerNumber, state, which, part, head, query)); // no one lambda
    return { A1: first, A2: second, DA: first.map((a, k) => a - taken[k] + given[k]) };
  };
  return { ...model, number, tokens, layers, image, change, maps };
}

// Colours and canvases. Shares of attention from dark to bright; what has a sign from blue through the ground to orange, zero in the middle.

const SEQUENTIAL = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];
const DIVERGING = {
  light: ["#0a4a80", "#6aa5cf", "#f4f4f2", "#e09a66", "#8f3206"],
  dark: ["#8fd0ff", "#2f6f9e", "#1a1f25", "#9c5325", "#ffb27a"],
};
const SIDE = 288; // pixels of a canvas; the page shows it smaller

function between(stops, t) {
  const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  const part = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mixed = [0, 1, 2].map((k) => Math.round(part(stops[i], k) + (place - i) * (part(stops[i + 1], k) - part(stops[i], k))));
  return `rgb(${mixed.join()})`;
}

const sequential = (value, top) => between(SEQUENTIAL, top > 0 ? value / top : 0);
const diverging = (value, reach) => between(DIVERGING[theme.isDark() ? "dark" : "light"], reach > 0 ? 0.5 + 0.5 * value / reach : 0.5);

// An image, or a change of it about mid-grey; pixels are (height, width, channels).
function drawPixels(canvas, [height, width, channels], byteAt) {
  const small = document.createElement("canvas");
  small.width = width;
  small.height = height;
  const paint = small.getContext("2d");
  const data = paint.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) data.data[4 * i + c] = byteAt(i * channels + Math.min(c, channels - 1));
    data.data[4 * i + 3] = 255;
  }
  paint.putImageData(data, 0, 0);
  canvas.width = canvas.height = SIDE;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, SIDE, SIDE);
}

function drawMap(canvas, patches, cells, colourOf) {
  canvas.width = canvas.height = SIDE;
  const context = canvas.getContext("2d");
  const edge = (k) => Math.round(k * SIDE / patches);
  for (let r = 0; r < patches; r++) {
    for (let c = 0; c < patches; c++) {
      context.fillStyle = colourOf(cells[r * patches + c]);
      context.fillRect(edge(c), edge(r), edge(c + 1) - edge(c), edge(r + 1) - edge(r));
    }
  }
}

// A box about a patch that is seen on any colour: dark inside light.
function drawBox(canvas, patches, place, dashed) {
  const context = canvas.getContext("2d");
  const edge = (k) => Math.round(k * SIDE / patches);
  const [x, y] = [edge(place.column), edge(place.row)];
  const [w, h] = [edge(place.column + 1) - x, edge(place.row + 1) - y];
  context.setLineDash(dashed ? [8, 6] : []);
  for (const [width, colour] of [[9, "#000"], [4, "#fff"]]) {
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.strokeRect(x + 3, y + 3, w - 6, h - 6);
  }
  context.setLineDash([]);
}

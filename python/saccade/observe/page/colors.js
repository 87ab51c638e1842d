// Colours of numbers, for light and dark pages.

const RAMPS = {
  light: [[245, 249, 250], [186, 219, 228], [102, 168, 187], [31, 111, 139], [8, 46, 64]],
  dark: [[27, 36, 43], [23, 68, 84], [33, 115, 143], [112, 192, 207], [228, 248, 251]],
};

const darkScheme = matchMedia("(prefers-color-scheme: dark)");

/* The colour [r, g, b] of a share from 0 to 1. */
function ramp(share) {
  const stops = RAMPS[darkScheme.matches ? "dark" : "light"];
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2), rest = place - low;
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * rest));
}

function css([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/* The colour of text on the colour of a share. */
function ink(share) {
  return share > 0.5 !== darkScheme.matches ? "#ffffff" : "#10181d";
}

/* A colour of the style sheet as [r, g, b]. */
function styleColor(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

/* The share of the ramp for a weight: the square root, so that small weights are seen. */
function weightShare(weight, largest) {
  return largest > 0 ? Math.sqrt(weight / largest) : 0;
}

function drawRamp(canvas, share) {
  const context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; ++x) {
    context.fillStyle = css(ramp(share(x / (canvas.width - 1))));
    context.fillRect(x, 0, 1, canvas.height);
  }
}

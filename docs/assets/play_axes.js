// Axes of the charts of the page Play: ticks at round numbers, and the drawing of SVG elements.
window.playAxes = (function () {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";

  function draw(parent, name, attributes, text = null) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== null) node.textContent = text;
    return parent.appendChild(node);
  }

  const minus = (text) => text.replace("-", "−");

  // Multiples of a step between two ends, where the step is 1, 2 or 5 times a power of ten and there are about `count` of
  // them. With `round` the ends are moved outwards to multiples. Returns {low, high, list: [{value, label}]}.
  function ticks(low, high, count, round = false) {
    const raw = (high - low) / count, power = Math.floor(Math.log10(raw) + 1e-12), lead = raw / 10 ** power;
    const factor = lead < Math.SQRT2 ? 1 : lead < Math.sqrt(10) ? 2 : lead < Math.sqrt(50) ? 5 : 10;
    const step = factor * 10 ** power, decimals = Math.max(0, -(factor === 10 ? power + 1 : power));
    const inwards = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
    const outwards = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
    const [first, last] = round ? outwards : inwards, list = [];
    for (let k = first; k <= last; k++) {
      list.push({ value: Number((k * step).toPrecision(12)), label: minus((k * step || 0).toFixed(decimals)) });
    }
    return { low: round ? first * step : low, high: round ? last * step : high, list };
  }

  // 1, 2 and 5 times the powers of ten between two ends.
  function logTicks(low, high) {
    const list = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
      for (const factor of [1, 2, 5]) {
        const value = Number(`${factor}e${power}`);
        if (value >= low * 0.999 && value <= high * 1.001) list.push({ value, label: String(value) });
      }
    }
    return list;
  }

  // Lines, ticks and names of both axes. `frame` is {left, right, top, bottom} in pixels, `places` maps values to them.
  function drawAxes(svg, frame, places, { xTicks, yTicks, xLabel, yLabel }) {
    const { left, right, top, bottom } = frame, middle = (top + bottom) / 2;
    for (const { value, label } of yTicks) {
      draw(svg, "line", { class: "grid", x1: left, x2: right, y1: places.y(value), y2: places.y(value) });
      draw(svg, "text", { class: "tick", x: left - 6, y: places.y(value) + 4, "text-anchor": "end" }, label);
    }
    for (const { value, label } of xTicks) {
      draw(svg, "line", { class: "tick", x1: places.x(value), x2: places.x(value), y1: bottom, y2: bottom + 4 });
      draw(svg, "text", { class: "tick", x: places.x(value), y: bottom + 17, "text-anchor": "middle" }, label);
    }
    draw(svg, "line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    draw(svg, "text", { class: "label", x: (left + right) / 2, y: bottom + 35, "text-anchor": "middle" }, xLabel);
    draw(svg, "text", { class: "label", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, yLabel);
  }

  return { draw, ticks, logTicks, drawAxes, minus };
})();

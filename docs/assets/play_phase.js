// The phase diagram of a cell: its predicted rate as a colour over two parameters, and a point that can be moved.
//
//   const phase = playPhase(element, onMove);
//   phase.show({cell, strength, input, title, xLabel});   // strength and input are places in docs/assets/play_phases.js
window.playPhase = function (element, onMove) {
  "use strict";
  const { axis, responsive } = window.playChart;
  const { strengths, inputs, ...cells } = window.playPhases;
  // Blue below 1 and orange above, which the colour-blind can tell apart, with a jump of lightness at 1.
  const MOST = 1.5, STOPS = [[0, [8, 48, 107]], [0.5, [50, 120, 185]], [0.8, [130, 185, 220]], [1, [226, 238, 248]],
    [1, [253, 184, 120]], [1.1, [230, 110, 30]], [MOST, [150, 50, 0]]];
  let now = null;

  function colour(rate) {
    const next = STOPS.findIndex(([end]) => Math.min(rate, MOST - 1e-9) < end);
    const [low, from] = STOPS[next - 1], [high, to] = STOPS[next], share = (Math.min(rate, MOST) - low) / (high - low);
    return `rgb(${from.map((value, k) => Math.round(value + (to[k] - value) * share))})`;
  }

  // The edges of cells: half way between the points of an axis, and as far beyond the first and the last.
  const edges = (points) => points.concat(NaN).map((point, k) =>
    (k === 0 ? 1.5 * point - 0.5 * points[1] : k === points.length ? 1.5 * points[k - 1] - 0.5 * points[k - 2] : (points[k - 1] + point) / 2));
  const columns = edges(strengths), rows = edges(inputs.map(Math.log)).map(Math.exp);
  const ends = (all) => [all[0], all[all.length - 1]];

  function fill({ ctx, valToPos }) {
    const x = columns.map((value) => Math.round(valToPos(value, "x", true))), y = rows.map((value) => Math.round(valToPos(value, "y", true)));
    inputs.forEach((_, row) => strengths.forEach((_, column) => {
      ctx.fillStyle = colour(cells[now.cell].rate[row][column] / 1e4);
      ctx.fillRect(x[column], y[row + 1], x[column + 1] - x[column], y[row] - y[row + 1]);
    }));
  }

  function name({ ctx, bbox: { left, top, width, height } }) {
    const unit = devicePixelRatio, write = (text, x, y, align) => {
      Object.assign(ctx, { font: `bold ${14 * unit}px sans-serif`, textAlign: align, lineJoin: "round", lineWidth: 3 * unit, strokeStyle: "#000", fillStyle: "#fff" });
      ctx.strokeText(text, x, y);
      ctx.fillText(text, x, y);
    };
    ctx.save();
    write("settles", left + 12 * unit, top + 22 * unit, "left");
    write("does not settle", left + width - 12 * unit, top + height - 12 * unit, "right");
    ctx.restore();
  }

  element.classList.add("play-chart");
  element.innerHTML = '<p class="play-title"></p><div></div><div class="play-colours"><i></i><p></p>rate: factor of a small error in each step</div>';
  element.querySelector("i").style.background = `linear-gradient(to right, ${STOPS.map(([rate, shade]) => `rgb(${shade}) ${(100 * rate) / MOST}%`)})`;
  element.querySelector(".play-colours p").innerHTML = [0, 0.5, 1, MOST].map((rate) => `<span>${rate}</span>`).join("");
  const chart = responsive(element.children[1], {
    height: 340, padding: [10, 16, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: ends(columns) }, y: { distr: 3, range: ends(rows) } },
    axes: [
      axis(() => now?.xLabel ?? "", { size: 34, grid: { show: false } }),
      axis("input, root mean square", { size: 52, grid: { show: false }, splits: () => [0.05, 0.1, 0.2, 0.5, 1, 2, 5], filter: (_, places) => places }),
    ],
    series: [{}, { paths: () => null, points: { show: true, size: 12, width: 4, stroke: "#000", fill: "#fff" } }],
    hooks: { drawClear: [(u) => now && fill(u)], draw: [name] },
  }, [strengths, strengths.map(() => null)]);

  const nearest = (points, value) => points.reduce((best, point, k) => (Math.abs(point - value) < Math.abs(points[best] - value) ? k : best), 0);
  function move(event) {
    if (!(event.buttons & 1 || event.type === "click")) return;
    const value = (place, scale) => chart.posToVal(place, scale);
    onMove({
      strength: nearest(strengths, value(event.offsetX, "x")),
      input: nearest(inputs.map(Math.log), Math.log(value(event.offsetY, "y"))),
    });
  }
  for (const type of ["click", "pointermove"]) chart.over.addEventListener(type, move);

  return {
    chart,
    show({ title, ...place }) {
      now = place;
      element.querySelector(".play-title").textContent = title;
      chart.setData([strengths, strengths.map((_, k) => (k === now.strength ? inputs[now.input] : null))]);
    },
  };
};

// The answer at a place, in sentences: whether it settles, the rate, and what both mean. Above a rate of 0.9 networks of
// some hundred units differ from wide ones.
window.playPhase.answer = function (rate, steps) {
  "use strict";
  return [
    steps ? `Settles in about ${steps} steps.` : "Does not settle.",
    ` Rate ${rate.toFixed(3)} per step. `,
    steps ? "After them the state changes by less than a thousandth of its size." : "Small errors do not shrink.",
    steps && rate > 0.9 ? " Narrow networks settle more slowly here, or not at all: see width= in Will it settle?" : "",
  ];
};

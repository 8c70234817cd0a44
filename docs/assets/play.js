// The page Play: what can be chosen, what to try, and what the charts show. The mathematics is in the other files play_*.js.
(function () {
  "use strict";
  const { activations, models, mixture } = window.playTheory;
  const { samples, kernel, distance } = window.playKernel;
  const { spectrum } = window.playSpectrum;
  const { learningCurve } = window.playLearning;
  const { minus, colour } = window.playChart;
  const { strengths, inputs, ...cellTables } = window.playPhases;
  const DIMENSION = 200, SAMPLES = 32;
  // Differences of kernel entries below this share of the diagonal are drawn as small.
  const LEAST = 0.005;
  // At n = 200, the number of dimensions, the density of eigenvalues has a pole: it is left out.
  const SIZES = [20, 30, 40, 50, 70, 100, 150, 300, 400, 500, 700, 1000, 1500, 2000, 3000, 5000];
  const NAMES = { deq: "DEQ", papers: "papers’ twin", injected: "injected twin", plain: "one plain layer" };
  const IDS = Object.keys(NAMES), OTHERS = IDS.slice(1);
  // z: the state, x: the input; matrices have independent Gaussian entries.
  const CELLS = {
    deq: { label: "DEQ: tanh(√s Az + Bx)", axis: "feedback s = σₐ²" },
    residual: { label: "residual: RMSNorm(z + √s W₂ GELU(W₁z) + Bx)", axis: "strength s of the branch" },
    swiglu: { label: "SwiGLU block: two sublayers with RMSNorm", axis: "strength s of both branches" },
  };

  const root = document.getElementById("playground");
  const part = (id) => document.getElementById(`play-${id}`);
  const control = (name) => root.querySelector(`[name=${name}]`);
  const percent = (value, digits = 2) => `${value.toFixed(digits)} %`;
  const points = (value) => (Math.abs(value) < 0.005 ? "0.00" : `${value > 0 ? "+" : ""}${minus(value.toFixed(2))}`);
  const number = (value) => (value === 0 ? "0" : minus(Number(value.toPrecision(4)).toString()));
  const short = (share) => (share < 1e-4 ? "< 0.01 %" : `${Number((100 * share).toPrecision(2))} %`);

  // --- what can be chosen -----------------------------------------------------------------------------------------

  const labels = (table) => Object.fromEntries(Object.entries(table).map(([name, { label }]) => [name, label]));
  const CONTROLS = {
    activation: { label: "activation φ", options: labels(activations) },
    sigma: { label: "feedback σₐ²", range: [5, 90, 5], format: (value) => (value / 100).toFixed(2) },
    distance: { label: "class distance", range: [0, 6, 0.1], format: (value) => value.toFixed(1) },
    spread: { label: "spread difference", range: [0, 4, 0.1], format: (value) => value.toFixed(1) },
    n: { label: "samples n", range: [0, SIZES.length - 1, 1], format: (value) => String(SIZES[value]) },
  };
  const CELL_CONTROLS = {
    cell: { label: "cell", options: labels(CELLS) },
    strength: { label: "strength s", range: [0, strengths.length - 1, 1], format: (value) => strengths[value].toFixed(1) },
    input: { label: "input (rms)", range: [0, inputs.length - 1, 1], format: (value) => String(inputs[value]) },
  };

  // What to try: the first of each list is what the page opens with.
  const at = (n) => SIZES.indexOf(n);
  const TRIES = [
    { name: "A layer falls short", set: { activation: "relu", sigma: 80, distance: 0, spread: 2.5, n: at(100), view: false },
      look: "Strong feedback: one plain layer (crosses) has other kernel entries and loses more than four points of accuracy, while both twins follow the DEQ." },
    { name: "A layer is enough", set: { activation: "tanh", sigma: 10, distance: 3, spread: 0, n: at(100), view: false },
      look: "Weak feedback: all four curves coincide, so that neither the DEQ nor a twin is needed." },
    { name: "A layer wins", set: { activation: "swish", sigma: 80, distance: 0, spread: 4, n: at(50), view: true },
      look: "One plain layer sees the difference of spreads better than the DEQ and its twins, by up to nine points of accuracy." },
    { name: "Blind to spreads", set: { activation: "tanh", sigma: 50, distance: 0, spread: 4, n: at(1000), view: false },
      look: "The classes differ in spread alone, which an odd activation hardly sees: at most 51 % for every n, until you choose ReLU." },
    { name: "Lost in the bulk", set: { activation: "relu", sigma: 50, distance: 1, spread: 0, n: at(300), view: false },
      look: "No isolated eigenvalue tells the classes apart, until you raise the class distance." },
    { name: "Equal numbers, other entries", set: { activation: "relu", sigma: 90, distance: 0, spread: 2.5, n: at(100), view: true },
      look: "The papers’ twin, here a polynomial, has the DEQ’s four numbers but not its kernel entries; the injected twin is much closer." },
  ];
  const CELL_TRIES = [
    { name: "Input too weak", set: { cell: "swiglu", strength: strengths.indexOf(1), input: inputs.indexOf(0.5) },
      look: "A SwiGLU block with a weak input does not settle: move the point up." },
    { name: "Input strong enough", set: { cell: "swiglu", strength: strengths.indexOf(1), input: inputs.indexOf(2) },
      look: "The same block with an input four times as large settles." },
    { name: "A norm is no guarantee", set: { cell: "residual", strength: strengths.indexOf(1), input: inputs.indexOf(0.12) },
      look: "RMSNorm bounds the state, but a weak input leaves it wandering: the rate is just above 1." },
    { name: "Feedback above 1", set: { cell: "deq", strength: strengths.indexOf(1.5), input: inputs.indexOf(1) },
      look: "A saturating activation can settle although σₐ² > 1: the input brings it to where its slope is small." },
  ];

  // Controls of a table, in a place of the page.
  function build(place, controls) {
    place.classList.add("play-controls");
    for (const [name, { label, options, range }] of Object.entries(controls)) {
      const field = document.createElement(options ? "select" : "input");
      field.name = name;
      if (options) for (const [value, text] of Object.entries(options)) field.add(new Option(text, value));
      else Object.assign(field, { type: "range", min: range[0], max: range[1], step: range[2] });
      const shell = place.appendChild(document.createElement("label"));
      shell.append(label, ...(options ? [] : [document.createElement("output")]), field);
    }
  }

  function buildTries(place, tries, onChange) {
    place.classList.add("play-try");
    place.innerHTML = '<div role="group" aria-label="What to try"><strong>What to try:</strong></div><p class="play-look" aria-live="polite"></p>';
    for (const { name, set } of tries) {
      const button = place.firstChild.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => {
        choose(set);
        onChange();
      });
    }
  }

  const get = (field) => (field.type === "checkbox" ? field.checked : field.type === "range" ? Number(field.value) : field.value);
  const ALL = [...Object.keys(CONTROLS), "view", ...Object.keys(CELL_CONTROLS)];
  const START = { ...TRIES[0].set, ...CELL_TRIES[0].set };
  const choice = () => Object.fromEntries(ALL.map((name) => [name, get(control(name))]));

  function choose(values) {
    for (const [name, value] of Object.entries(values)) {
      if (!(name in START)) continue;
      if (name === "view") control(name).checked = String(value) === "true";
      else control(name).value = value;
    }
  }

  function fromAddress() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    return given.activation in activations ? { ...START, ...given, cell: given.cell in CELLS ? given.cell : START.cell } : START;
  }

  // The values beside the sliders, and which button stands for what is chosen.
  function showChoice(now) {
    for (const [name, { format }] of Object.entries({ ...CONTROLS, ...CELL_CONTROLS })) {
      if (!format) continue;
      control(name).previousSibling.textContent = format(now[name]);
      control(name).setAttribute("aria-valuetext", format(now[name]));
    }
    for (const [id, tries] of [["try", TRIES], ["cell-try", CELL_TRIES]]) {
      const chosen = tries.findIndex(({ set }) => Object.keys(set).every((name) => set[name] === now[name]));
      part(id).querySelectorAll("button").forEach((button, k) => button.setAttribute("aria-pressed", k === chosen));
      part(id).querySelector(".play-look").textContent = chosen < 0 ? "Your own setting." : tries[chosen].look;
    }
  }

  // --- charts -----------------------------------------------------------------------------------------------------

  const DOTS = { deq: undefined, plain: "cross", papers: "ring", injected: "dot" };
  const LINES = IDS.map((id) => ({ id, label: NAMES[id] }));
  const hold = (least) => (_, low, high) => {
    const pad = high - low < least ? least : 0;
    return uPlot.rangeNum(low - pad, high + pad, 0.1, true);
  };
  const wide = { time: false, range: (_, low, high) => [low - 0.02 * (high - low), high + 0.02 * (high - low)] };
  const positive = (_, places) => places.map((place) => (place < 0 ? null : place));
  // What the legend of the spectrum says at isolated eigenvalues, and the curves: values by id.
  let marks = {}, curves = {};

  const charts = {
    kernel: window.playChart(part("kernel"), {
      title: "Kernel entries of pairs of samples", xName: "entry of the DEQ", xLabel: "entry of the DEQ / diagonal", yLabel: "other network − DEQ",
      series: Object.entries(DOTS).map(([id, kind]) => ({ id, kind, label: NAMES[id] })),
      scales: { x: wide, y: { range: hold(LEAST) } },
      formatX: (x) => minus(x.toFixed(4)), value: (y) => minus(y.toFixed(4)).replace(/^−(0\.0+)$/, "$1"),
    }),
    // Under the curves are marks of isolated eigenvalues, one row for each network.
    spectrum: window.playChart(part("spectrum"), {
      title: "Eigenvalues of the kernel", xName: "eigenvalue", xLabel: "eigenvalue / diagonal of the kernel", yLabel: "density",
      series: [...LINES, ...IDS.map((id) => ({ id, kind: "tick", label: "" }))],
      scales: { x: wide, y: { range: (_, low, high) => [low < 0 ? low - high / 20 : 0, 1.05 * high] } },
      yAxis: { filter: positive, grid: { stroke: () => colour("faint"), width: 1, filter: positive }, ticks: { show: false } },
      formatX: number, value: (y, which, x) => (y === null ? marks[IDS[which]]?.[x] ?? "–" : number(y)),
    }),
    curve: window.playChart(part("curve"), {
      title: "Predicted test accuracy", xName: "n", xLabel: "training samples n", series: LINES,
      yLabel: () => (control("view").checked ? "difference, percentage points" : "test accuracy, %"),
      scales: { x: { time: false, distr: 3, range: [SIZES[0], SIZES[SIZES.length - 1]] },
        y: { range: (...all) => hold(control("view").checked ? 0.1 : 1)(...all) } },
      xAxis: { splits: () => [20, 50, 100, 200, 500, 1000, 2000, 5000], filter: (_, places) => places },
      formatX: String, value: (y) => (y === null ? "–" : control("view").checked ? points(y) : percent(y)),
      hooks: { draw: [showSize] },
    }),
  };

  // A vertical line at the n that is chosen.
  function showSize({ ctx, bbox, valToPos }) {
    const x = valToPos(SIZES[choice().n], "x", true);
    ctx.save();
    ctx.strokeStyle = colour("ink");
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.stroke(new Path2D(`M${x},${bbox.top}V${bbox.top + bbox.height}`));
    ctx.restore();
  }

  // Each network's kernel is multiplied by the factor that brings it closest to the DEQ's.
  function showKernel(all, classes) {
    const rows = samples(classes, SAMPLES), kernels = Object.fromEntries(IDS.map((id) => [id, kernel(all[id], rows)]));
    const unit = rows.reduce((sum, _, i) => sum + kernels.deq[i * (SAMPLES + 1)], 0) / SAMPLES;
    const pairs = rows.flatMap((_, i) => rows.slice(0, i).map((_, j) => i * SAMPLES + j));
    const order = pairs.sort((a, b) => kernels.deq[a] - kernels.deq[b]);
    const distances = Object.fromEntries(IDS.map((id) => [id, id === "deq" ? { factor: 1 } : distance(kernels.deq, kernels[id])]));
    const columns = Object.keys(DOTS).map((id) => order.map((k) => (distances[id].factor * kernels[id][k] - kernels.deq[k]) / unit));
    const errors = OTHERS.map((id) => `${NAMES[id]} ${short(distances[id].error)}`);
    charts.kernel.show([order.map((k) => kernels.deq[k] / unit), ...columns],
      `Kernel error: ${errors.join(", ")}, each up to a factor, which changes no prediction at the best ridge.`);
  }

  function showSpectrum(all, classes, n) {
    const spectra = IDS.map((id) => {
      const { diagonal } = all[id].scalars(), { isolated, atom, ...one } = spectrum(all[id].scalars(), classes, n);
      const labels = isolated.map(({ value, contrast }) => [value / diagonal, `isolated (${percent(100 * contrast, 0)})`]);
      const mass = atom ? [[atom.value / diagonal, `${atom.count} eigenvalues`]] : [];
      return { ...one, id, diagonal, isolated, atom, labels: new Map([...mass, ...labels]) };
    });
    const places = spectra.flatMap((one) => [...one.points(60).map((value) => value / one.diagonal), ...one.labels.keys()]);
    const x = [...new Set(places)].sort((a, b) => a - b);
    const within = (one, value) => one.bulks.some(([low, high]) => value > low - 1e-9 && value < high + 1e-9);
    const densities = spectra.map((one) => x.map((place) =>
      (within(one, place * one.diagonal) ? one.density(place * one.diagonal) * one.diagonal : null)));
    const row = -Math.max(...densities.flat()) / 16;
    const rug = spectra.map((one, k) => x.map((place) => (one.labels.has(place) ? (k + 1) * row : null)));
    marks = Object.fromEntries(spectra.map(({ id, labels }) => [id, x.map((place) => labels.get(place))]));
    const [{ isolated, atom }] = spectra, telling = isolated.some((one) => one.contrast > 0.1);
    const seen = isolated.length === 0 ? "No eigenvalue of the DEQ is isolated"
      : `Isolated eigenvalues of the DEQ (marks below the curves; %: how well the eigenvector tells the classes apart): ${isolated.length}`;
    const many = atom ? ` Lowest mark: ${atom.count} of ${n} eigenvalues in one place.` : "";
    charts.spectrum.show([x, ...densities, ...rug],
      `${seen}. ${telling ? "An eigenvector tells the classes apart." : "No single eigenvector tells the classes apart."}${many}`);
  }

  function showCurve({ n: place, view }) {
    const ready = IDS.filter((id) => curves[id]), n = SIZES[place];
    if (!ready.includes("deq")) return;
    const value = (id, k) => (curves[id] ? 100 * (curves[id][k].accuracy - (view ? curves.deq[k].accuracy : 0)) : null);
    const gaps = ready.slice(1).map((id) => `${NAMES[id]} ${points(100 * (curves[id][place].accuracy - curves.deq[place].accuracy))}`);
    charts.curve.show([SIZES, ...IDS.map((id) => SIZES.map((_, k) => value(id, k)))],
      `n = ${n}: DEQ ${percent(100 * curves.deq[place].accuracy)}${gaps.length ? `; percentage points from it: ${gaps.join(", ")}.` : "."}`);
  }

  function showNumbers(all) {
    const rows = IDS.map((id) => {
      const { diagonal, linear, norm, trace } = all[id].scalars();
      return `<tr><th>${NAMES[id]}</th>${[diagonal, linear / diagonal, norm / diagonal, trace / diagonal].map((value) => `<td>${number(value)}</td>`).join("")}</tr>`;
    });
    part("numbers").innerHTML =
      `<thead><tr><th>network</th><th>γ²</th><th>α₁/γ²</th><th>α₂/γ²</th><th>α₃/γ²</th></tr></thead><tbody>${rows.join("")}</tbody>`;
  }

  function showRecipe({ activation, sigma, distance: gap, spread }, n) {
    part("recipe").textContent = [
      "import numpy as np",
      "import notsodeep as nsd",
      "",
      `deq = nsd.DEQ("${activation}", sigma_a2=${sigma / 100}).centred(1.0)`,
      "twin = nsd.design(deq, tau0=1.0)",
      `means = np.zeros((2, ${DIMENSION}))`,
      `means[:, 0] = -${gap / 2}, ${gap / 2}`,
      `spread = ${spread} / np.sqrt(${DIMENSION})`,
      "mixture = nsd.GaussianMixture(means, [1 - spread, 1 + spread])",
      `print(nsd.limiting_density(deq, mixture, n=${n}))`,
      `print(nsd.learning_curve(twin.network, mixture, n=${n}, ridge="best").accuracy)`,
    ].join("\n");
  }

  // --- cells ------------------------------------------------------------------------------------------------------

  const phase = window.playPhase(part("phase"), (place) => {
    choose(place);
    updateCell();
  });

  const RECIPES = {
    deq: (s) => [`model = nsd.DEQ("tanh", sigma_a2=${s}, sigma_b2=1.0)`],
    residual: (s) => [
      "z, x = cells.state(), cells.input()",
      `branch = cells.dense(cells.activation(cells.dense(z, 1.0), "gelu"), ${s})`,
      "model = nsd.Equilibrium(cells.norm(z + branch + cells.dense(x, 1.0)))",
    ],
    swiglu: (s) => [
      "def sublayer(y):",
      '    gate = cells.activation(cells.dense(y, 1.0), "swish")',
      `    return cells.norm(y + cells.dense(gate * cells.dense(y, 1.0), ${s}))`,
      "",
      "z, x = cells.state(), cells.input()",
      "model = nsd.Equilibrium(sublayer(sublayer(z + cells.dense(x, 1.0))))",
    ],
  };

  function showCell({ cell, strength, input }) {
    const rate = cellTables[cell].rate[input][strength] / 1e4, steps = cellTables[cell].steps[input][strength];
    phase.show({ cell, strength, input, title: CELLS[cell].label, xLabel: CELLS[cell].axis });
    const [verdict, ...explained] = window.playPhase.answer(rate, steps);
    part("answer").replaceChildren(Object.assign(document.createElement("strong"), { textContent: verdict }), ...explained);
    part("cell-recipe").textContent = [
      "import numpy as np", "import notsodeep as nsd", ...(cell === "deq" ? [] : ["from notsodeep import cells"]), "",
      ...RECIPES[cell](strengths[strength].toFixed(1)),
      `X = np.full((1, 1), ${inputs[input]})  # one sample, by its norm`,
      "print(nsd.forecast(model, X).advice)",
    ].join("\n");
  }

  // --- one change after the other -----------------------------------------------------------------------------------

  let requested = null, timer = null;

  // The address of the page holds what is chosen. Browsers limit how often it may change.
  function remember() {
    clearTimeout(timer);
    timer = setTimeout(() => history.replaceState(null, "", `#${new URLSearchParams(choice())}`), 100);
  }

  function updateCell() {
    showChoice(choice());
    showCell(choice());
    remember();
  }

  function update() {
    const now = choice(), n = SIZES[now.n];
    showChoice(now);
    const all = models(now.activation, now.sigma / 100, window.playTwins[now.activation][now.sigma]);
    const classes = mixture(DIMENSION, now.distance, now.spread);
    showSpectrum(all, classes, n);
    showRecipe(now, n);
    remember();
    // A change of n alone moves a line in the curve; anything else asks for new kernels, and curves one by one.
    const key = [now.activation, now.sigma, now.distance, now.spread].join();
    if (key === requested) return showCurve(now);
    requested = key;
    showKernel(all, classes);
    showNumbers(all);
    const fresh = {}, queue = [...IDS];
    function next() {
      if (key !== requested) return;
      const id = queue.shift();
      if (id === undefined) {
        root.dataset.ready = key;
        return;
      }
      fresh[id] = learningCurve(all[id], classes, SIZES);
      curves = fresh;
      showCurve(choice());
      setTimeout(next);
    }
    setTimeout(next);
  }

  function start() {
    build(part("controls"), CONTROLS);
    build(part("cell-controls"), CELL_CONTROLS);
    buildTries(part("try"), TRIES, update);
    buildTries(part("cell-try"), CELL_TRIES, updateCell);
    choose(fromAddress());
    for (const name of ALL) control(name).addEventListener("input", name in CELL_CONTROLS ? updateCell : update);
    window.addEventListener("hashchange", () => {
      choose(fromAddress());
      updateCell();
      update();
    });
    updateCell();
    update();
  }

  window.play = { charts, phase, choice };
  start();
})();

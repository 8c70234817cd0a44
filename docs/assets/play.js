// The page Play: controls, three charts, the numbers behind them. The mathematics is in the other files play_*.js.
(function () {
  "use strict";
  const { activations, models, mixture } = window.playTheory;
  const { spectrum } = window.playSpectrum;
  const { learningCurve } = window.playLearning;
  const DIMENSION = 200;
  const SIZES = Array.from({ length: 25 }, (_, k) => 2 * Math.round(10 * 250 ** (k / 24)));
  const NAMES = { deq: "DEQ", papers: "papers’ twin", injected: "injected twin", plain: "one plain layer" };
  const IDS = Object.keys(NAMES);
  const START = { activation: "relu", sigma: 50, distance: 1.5, spread: 2, n: 14 };

  const root = document.getElementById("playground");
  const control = (name) => root.querySelector(`[name=${name}]`);
  const percent = (value, short) => `${(100 * value).toFixed(short ? 0 : 2)} %`;
  const points = (value, short) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(short ? 1 : 2)}`;
  const number = (value) => (value === 0 ? "0" : Number(value.toPrecision(4)).toString().replace("-", "−"));

  const charts = {
    activations: window.playChart(root.querySelector("#play-activations"), {
      title: "Activations", xName: "x =", xLabel: "x, what enters a neuron", yLabel: "activation, centred",
      formatX: (x, short) => number(short ? x : Number(x.toFixed(3))), formatY: (y) => number(y),
    }),
    spectrum: window.playChart(root.querySelector("#play-spectrum"), {
      title: "Eigenvalues of the kernel", xName: "eigenvalue", xLabel: "eigenvalue / diagonal of the kernel", yLabel: "density",
      formatX: (x) => number(x), formatY: (y) => number(y),
    }),
    curve: window.playChart(root.querySelector("#play-curve"), {
      title: "Predicted test accuracy", xName: "n =", xLabel: "training samples n", logarithmic: true,
      formatX: (x) => String(x), formatY: (y, short) => (differences() ? points(y, short) : percent(y, short)),
    }),
  };
  const differences = () => root.querySelector("[name=view]:checked").value === "difference";

  // --- what is chosen ---------------------------------------------------------------------------------------------

  function choice() {
    return Object.fromEntries(Object.keys(START).map((name) => [name, name === "activation" ? control(name).value : Number(control(name).value)]));
  }

  function choose(values) {
    for (const [name, value] of Object.entries(values)) if (name in START) control(name).value = value;
  }

  function fromAddress() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    return given.activation in activations ? { ...START, ...given } : START;
  }

  // --- pictures ---------------------------------------------------------------------------------------------------

  function showActivations(all, twin) {
    const x = Array.from({ length: 241 }, (_, k) => -3 + k / 40);
    const layers = all.papers.layers;
    const series = [
      { id: "deq", label: "DEQ", y: x.map(all.deq.layers[0].value) },
      ...layers.map((layer, l) => ({ id: `papers${l + 1}`, label: `papers’ twin, layer ${l + 1}`, y: x.map(layer.value) })),
    ];
    const every = series.flatMap((one) => one.y);
    const { weights, inject, amplitudes } = twin.injected;
    charts.activations.show({
      x, series, range: [Math.min(...every), Math.max(...every)],
      summary: `The injected twin keeps the DEQ’s activation in two layers: ${number(weights[0])} of the input enters the first; ` +
        `${number(weights[1])} of the first layer and ${number(inject[0])} of the input the second (variances), whose output is multiplied by ${number(amplitudes[1])}.`,
    });
  }

  function showSpectrum(all, classes, n) {
    const found = Object.fromEntries(IDS.map((id) => [id, { diagonal: all[id].scalars().diagonal, ...spectrum(all[id].scalars(), classes, n) }]));
    const x = [...new Set(IDS.flatMap((id) => found[id].points(60).map((value) => value / found[id].diagonal)))].sort((a, b) => a - b);
    const within = (one, value) => one.bulks.some(([low, high]) => value > low - 1e-9 && value < high + 1e-9);
    const series = IDS.map((id) => ({
      id, label: NAMES[id],
      y: x.map((place) => place * found[id].diagonal).map((value) =>
        (within(found[id], value) ? found[id].density(value) * found[id].diagonal : null)),
    }));
    const own = found.deq, unit = own.diagonal;
    const marks = own.isolated.map((one) => ({
      kind: "stem", id: "deq", x: one.value / unit, height: 0.6,
      label: `isolated; ${percent(one.alignment[0] + one.alignment[1], true)} of its eigenvector tells the classes`,
    }));
    if (own.atom) {
      marks.push({ kind: "stem", id: "deq", x: own.atom.value / unit, height: 0.95, label: `${own.atom.count} of ${n} eigenvalues in one place` });
    }
    // An edge where n is close to p is a pole: the picture is cut at four times the middle of the density.
    const inside = series[0].y.filter((y) => y > 0).sort((a, b) => a - b);
    const top = Math.min(Math.max(...inside), 4 * inside[Math.floor(inside.length / 2)]);
    const above = own.isolated.filter((one) => one.value > own.bulks[own.bulks.length - 1][1]);
    charts.spectrum.show({
      x, series, marks, range: [0, 1.05 * top],
      summary: above.length
        ? `${above.length === 1 ? "One eigenvalue stands" : `${above.length} eigenvalues stand`} above the others: the classes can be seen in the kernel.`
        : "No eigenvalue stands above the others: the classes cannot be seen in the kernel’s spectrum.",
    });
  }

  let curves = {};

  function showCurve(n) {
    const ready = IDS.filter((id) => curves[id]);
    if (!ready.includes("deq")) return;
    const shift = (k) => (differences() ? curves.deq[k].accuracy : 0);
    const series = ready.map((id) => ({ id, label: NAMES[id], y: curves[id].map((one, k) => one.accuracy - shift(k)) }));
    const every = series.flatMap((one) => one.y);
    let low = Math.min(...every), high = Math.max(...every);
    if (differences()) [low, high] = [Math.min(low, -0.001), Math.max(high, 0.001)];
    else [low, high] = [Math.max(0, Math.floor(low * 20 - 0.2) / 20), Math.min(1, Math.ceil(high * 20 + 0.2) / 20)];
    const k = SIZES.indexOf(n);
    const gap = ready.filter((id) => id !== "deq").map((id) => `${NAMES[id]} ${points(curves[id][k].accuracy - curves.deq[k].accuracy)}`);
    charts.curve.show({
      x: SIZES, series, range: [low, high], marks: [{ kind: "line", x: n }],
      yLabel: differences() ? "difference, points" : "test accuracy",
      summary: `At n = ${n}: DEQ ${percent(curves.deq[k].accuracy)}${gap.length ? `; beside it, in points: ${gap.join(", ")}.` : "."}`,
    });
  }

  function showNumbers(all) {
    const body = root.querySelector("#play-numbers tbody");
    body.replaceChildren(...IDS.map((id) => {
      const found = all[id].scalars(), row = document.createElement("tr");
      [NAMES[id], found.diagonal, found.linear / found.diagonal, found.norm / found.diagonal, found.trace / found.diagonal].forEach((value, k) => {
        const cell = row.appendChild(document.createElement(k ? "td" : "th"));
        cell.textContent = k ? number(value) : value;
      });
      return row;
    }));
  }

  function showRecipe({ activation, sigma, distance, spread }, n) {
    root.querySelector("#play-recipe").textContent = [
      "import numpy as np",
      "import notsodeep as nsd",
      "",
      `deq = nsd.DEQ("${activation}", sigma_a2=${sigma / 100}).centred(1.0)`,
      "twin = nsd.design(deq, tau0=1.0)",
      `means = np.zeros((2, ${DIMENSION}))`,
      `means[:, 0] = -${distance / 2}, ${distance / 2}`,
      `spread = ${spread} / np.sqrt(${DIMENSION})`,
      "mixture = nsd.GaussianMixture(means, [1 - spread, 1 + spread])",
      `print(nsd.limiting_density(deq, mixture, n=${n}).describe())`,
      `print(nsd.learning_curve(twin.network, mixture, n=${n}, ridge="best").accuracy)`,
    ].join("\n");
  }

  // --- one change after the other -----------------------------------------------------------------------------------

  let turn = 0;

  function update() {
    const mine = ++turn, now = choice(), n = SIZES[now.n];
    const outputs = {
      sigma: (now.sigma / 100).toFixed(2), distance: now.distance.toFixed(1), spread: now.spread.toFixed(1), n: String(n),
    };
    for (const [name, text] of Object.entries(outputs)) root.querySelector(`output[for=play-${name}]`).textContent = text;
    control("n").setAttribute("aria-valuetext", `${n} samples`);
    control("sigma").setAttribute("aria-valuetext", outputs.sigma);
    const twin = window.playTwins.table[now.activation][now.sigma - window.playTwins.first];
    const all = models(now.activation, now.sigma / 100, twin), classes = mixture(DIMENSION, now.distance, now.spread);
    showActivations(all, twin);
    showSpectrum(all, classes, n);
    showNumbers(all);
    showRecipe(now, n);
    history.replaceState(null, "", `#${new URLSearchParams(now)}`);
    performance.mark("play-first-picture");
    // A change of n alone moves a line in the curve; anything else asks for new curves, one model at a time.
    const key = [now.activation, now.sigma, now.distance, now.spread].join();
    if (key === curves.key) return showCurve(n);
    const fresh = { key };
    const queue = [...IDS];
    function next() {
      if (mine !== turn) return;
      const id = queue.shift();
      if (id === undefined) {
        performance.mark("play-complete");
        root.dataset.ready = key;
        return;
      }
      fresh[id] = learningCurve(all[id], classes, SIZES);
      if (mine !== turn) return;
      curves = fresh;
      showCurve(n);
      setTimeout(next);
    }
    setTimeout(next);
  }

  function start() {
    for (const [name, { label }] of Object.entries(activations)) control("activation").add(new Option(label, name));
    choose(fromAddress());
    for (const name of Object.keys(START)) control(name).addEventListener("input", update);
    for (const view of root.querySelectorAll("[name=view]")) view.addEventListener("input", () => showCurve(SIZES[choice().n]));
    root.querySelector("#play-again").addEventListener("click", () => {
      choose(START);
      update();
    });
    window.addEventListener("hashchange", () => {
      choose(fromAddress());
      update();
    });
    update();
  }

  window.play = { charts, sizes: SIZES, dimension: DIMENSION, choice };
  start();
})();

// The numbers of the page Play, from formulas alone. Numbers in brackets are equations of docs/theory.md.
// tests/docs/test_play.py compares what is computed here with the Python package.
//
// Everywhere the norm of a typical sample is 1, sigma_b2 = 1 - sigma_a2, and activations are centred: E[phi] = 0.
window.playTheory = (function () {
  "use strict";

  // --- activations -----------------------------------------------------------------------------------------------
  // A layer is {value: its function, kinks: where it is not smooth}.

  // erf by its series for small arguments, by a continued fraction for large ones; accurate to about 1e-15.
  function erf(x) {
    const size = Math.abs(x);
    if (size < 2.5) {
      let term = x, sum = x;
      for (let k = 1; Math.abs(term) > 1e-17 * Math.abs(sum) && k < 120; k++) {
        term *= (2 * x * x) / (2 * k + 1);
        sum += term;
      }
      return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
    }
    let fraction = size;
    for (let k = 60; k > 0; k--) fraction = size + (k / 2) / fraction;
    return Math.sign(x) * (1 - Math.exp(-x * x) / (Math.sqrt(Math.PI) * fraction));
  }

  const normalCdf = (x) => 0.5 * (1 + erf(x / Math.SQRT2));

  const activations = {
    relu: { label: "ReLU", value: (x) => Math.max(x, 0), kinks: [0] },
    leaky_relu: { label: "Leaky ReLU (0.1)", value: (x) => Math.max(x, 0.1 * x), kinks: [0] },
    gelu: { label: "GELU", value: (x) => x * normalCdf(x), kinks: [] },
    swish: { label: "Swish (SiLU)", value: (x) => x / (1 + Math.exp(-x)), kinks: [] },
    elu: { label: "ELU", value: (x) => (x > 0 ? x : Math.expm1(x)), kinks: [0] },
    tanh: { label: "tanh", value: Math.tanh, kinks: [] },
    erf: { label: "erf", value: erf, kinks: [] },
    hard_tanh: { label: "hard tanh", value: (x) => Math.min(Math.max(x, -1), 1), kinks: [-1, 1] },
    sin: { label: "sin", value: Math.sin, kinks: [] },
  };

  function scaled(layer, amplitude, offset) {
    return { value: (x) => amplitude * layer.value(x) + offset, kinks: layer.kinks };
  }

  // Straight pieces: `slopes` to the left of, between and to the right of `knots`, and the value at 0.
  function piecewiseLinear(knots, slopes, atZero) {
    const rise = (x) => knots.reduce((sum, knot, k) => sum + (slopes[k + 1] - slopes[k]) * Math.max(x - knot, 0), slopes[0] * x);
    const start = atZero - rise(0);
    return { value: (x) => start + rise(x), kinks: knots };
  }

  // A layer of the table docs/assets/play_twins.js.
  function tabulatedLayer(row) {
    if (row.knots) return piecewiseLinear(row.knots, row.slopes, row.at_zero);
    return { value: (x) => row.powers.reduceRight((sum, coefficient) => sum * x + coefficient, 0), kinks: [] };
  }

  // --- Gaussian moments, section 2 -------------------------------------------------------------------------------

  const TERMS = 14; // of Mehler's series: correlations between samples here are below 0.4
  const REACH = 9; // beyond 9 standard deviations nothing is left

  // Nodes and weights of the Gauss-Legendre rule on [-1, 1], by Newton's method on the Legendre polynomial.
  function gaussLegendre(number) {
    const rule = [];
    for (let i = 0; i < number; i++) {
      let x = Math.cos((Math.PI * (i + 0.75)) / (number + 0.5)), slope = 1;
      for (let step = 0; step < 50; step++) {
        let before = 1, here = x;
        for (let k = 2; k <= number; k++) [before, here] = [here, ((2 * k - 1) * x * here - (k - 1) * before) / k];
        slope = (number * (x * here - before)) / (x * x - 1);
        const change = here / slope;
        x -= change;
        if (Math.abs(change) < 1e-16) break;
      }
      rule.push([x, 2 / ((1 - x * x) * slope * slope)]);
    }
    return rule;
  }

  const RULE = gaussLegendre(12);

  // Moments of a layer at variance q: Mehler coefficients a_k (2.6), S (2.2) and S' (2.3). No derivative is needed;
  // integrals are split at the kinks.
  function moments(layer, q) {
    layer.remembered ??= new Map();
    if (layer.remembered.has(q)) return layer.remembered.get(q);
    const scale = Math.sqrt(q);
    const breaks = layer.kinks.map((kink) => kink / scale).filter((place) => Math.abs(place) < REACH);
    for (let place = -REACH; place <= REACH; place++) breaks.push(place);
    breaks.sort((left, right) => left - right);
    const coefficients = new Float64Array(TERMS);
    let energy = 0, slope = 0;
    for (let panel = 0; panel + 1 < breaks.length; panel++) {
      const half = (breaks[panel + 1] - breaks[panel]) / 2, middle = (breaks[panel + 1] + breaks[panel]) / 2;
      if (half === 0) continue;
      for (const [node, share] of RULE) {
        const x = middle + half * node;
        const value = layer.value(scale * x);
        const weight = (half * share * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
        energy += weight * value * value;
        slope += weight * value * value * (x * x - 1);
        let before = 0, hermite = 1; // He_k/sqrt(k!)
        for (let k = 0; k < TERMS; k++) {
          coefficients[k] += weight * value * hermite;
          [before, hermite] = [hermite, (x * hermite - Math.sqrt(k) * before) / Math.sqrt(k + 1)];
        }
      }
    }
    const found = { q, coefficients, energy, slope: slope / (2 * q) };
    if (layer.remembered.size > 400) layer.remembered.clear();
    layer.remembered.set(q, found);
    return found;
  }

  // E[phi^(k)(sqrt(q) xi)], (2.1).
  const mean = (found) => found.coefficients[0];
  const firstDerivative = (found) => found.coefficients[1] / Math.sqrt(found.q);
  const secondDerivative = (found) => (found.coefficients[2] * Math.SQRT2) / found.q;

  // F, F', F'' of two variances and a covariance by Mehler's series, (3.13) and (3.14).
  function duals(first, second, covariance) {
    const scale = Math.sqrt(first.q * second.q), rho = covariance / scale;
    let value = 0, slope = 0, curvature = 0;
    for (let k = TERMS - 1; k >= 0; k--) {
      const product = first.coefficients[k] * second.coefficients[k];
      value = value * rho + product;
      if (k >= 1) slope = slope * rho + k * product;
      if (k >= 2) curvature = curvature * rho + k * (k - 1) * product;
    }
    return [value, slope / scale, curvature / scale ** 2];
  }

  // --- models ----------------------------------------------------------------------------------------------------
  // A model has layers and
  //   diagonal(s)      the kernel of a sample of squared norm s with itself,
  //   entry(s, t, c)   the kernel of two samples with squared norms s and t and inner product c,
  //   series(s, t)     g_0, g_1, g_2 of (11.7): its expansion in c,
  //   scalars()        alpha_1, alpha_2, alpha_3 and gamma^2 of (4.6) or (4.14).

  // z = phi(sigma_a A z + sigma_b B x)/sqrt(m), with phi centred by (2.11).
  function deq(shape, sigmaA2) {
    const sigmaB2 = 1 - sigmaA2;
    let q = 1;
    for (let step = 0; step < 200; step++) {
      const found = moments(shape, q);
      const excess = q - sigmaA2 * (found.energy - mean(found) ** 2) - sigmaB2;
      const change = excess / (1 - sigmaA2 * (found.slope - mean(found) * secondDerivative(found)));
      q -= change;
      if (Math.abs(change) < 1e-15 * q) break;
    }
    const layer = scaled(shape, 1, -mean(moments(shape, q)));
    const variances = new Map();
    // q = sigma_a2 S(q) + sigma_b2 s by Newton's method, (3.4).
    function variance(square) {
      if (variances.has(square)) return variances.get(square);
      let value = square;
      for (let step = 0; step < 200; step++) {
        const found = moments(layer, value);
        const change = (value - sigmaA2 * found.energy - sigmaB2 * square) / (1 - sigmaA2 * found.slope);
        value -= change;
        if (Math.abs(change) < 1e-14 * value) break;
      }
      variances.set(square, value);
      return value;
    }
    // The covariance of what enters the neurons, lambda = sigma_a2 F(lambda) + sigma_b2 c, (3.5), by (3.6).
    function covariance(first, second, inner) {
      let lambda = sigmaB2 * inner;
      for (let step = 0; step < 60; step++) {
        const [value, slope] = duals(first, second, lambda);
        const change = (sigmaA2 * value + sigmaB2 * inner - lambda) / (1 - sigmaA2 * slope);
        lambda += change;
        if (Math.abs(change) < 1e-15) break;
      }
      return lambda;
    }
    return {
      layers: [layer],
      diagonal: (square) => moments(layer, variance(square)).energy,
      entry(left, right, inner) {
        const first = moments(layer, variance(left)), second = moments(layer, variance(right));
        return duals(first, second, covariance(first, second, inner))[0];
      },
      series(left, right) {
        const first = moments(layer, variance(left)), second = moments(layer, variance(right));
        const lambda = covariance(first, second, 0);
        const [value, slope, curvature] = duals(first, second, lambda);
        const gain = 1 - sigmaA2 * slope, rate = sigmaB2 / gain;
        return [value, slope * rate, (curvature * rate * rate) / (2 * gain)]; // (5.3)
      },
      scalars() {
        const found = moments(layer, q);
        const first = firstDerivative(found) ** 2, second = secondDerivative(found) ** 2;
        const gain = 1 - sigmaA2 * first, rate = sigmaB2 / gain, norm = sigmaB2 / (1 - sigmaA2 * found.slope);
        return {
          linear: first * rate,
          norm: (second * norm * norm) / (4 * gain),
          trace: (second * rate * rate) / (2 * gain),
          diagonal: found.energy,
        };
      },
    };
  }

  // Layers that see the input again, (7.8): weights w_l, injected c_l. Plain layers have w_l = 1 and c_l = 0.
  function explicit(layers, weights, inject) {
    weights ??= layers.map(() => 1);
    inject ??= layers.map(() => 0);
    return {
      layers, weights, inject,
      diagonal(square) {
        return layers.reduce((q, layer, l) => moments(layer, weights[l] * q + inject[l] * square).energy, square);
      },
      entry(left, right, inner) {
        let q = left, r = right, covariance = inner;
        layers.forEach((layer, l) => {
          const first = moments(layer, weights[l] * q + inject[l] * left);
          const second = moments(layer, weights[l] * r + inject[l] * right);
          covariance = duals(first, second, weights[l] * covariance + inject[l] * inner)[0];
          [q, r] = [first.energy, second.energy];
        });
        return covariance;
      },
      series(left, right) {
        let q = left, r = right, series = [0, 1, 0]; // of the inner product itself
        layers.forEach((layer, l) => {
          const first = moments(layer, weights[l] * q + inject[l] * left);
          const second = moments(layer, weights[l] * r + inject[l] * right);
          const base = weights[l] * series[0], linear = weights[l] * series[1] + inject[l], square = weights[l] * series[2];
          const [value, slope, curvature] = duals(first, second, base);
          series = [value, slope * linear, slope * square + (curvature * linear * linear) / 2];
          [q, r] = [first.energy, second.energy];
        });
        return series;
      },
      scalars() {
        let found = { linear: 1, norm: 0, trace: 0, diagonal: 1, rate: 1 };
        layers.forEach((layer, l) => {
          const w = weights[l], c = inject[l]; // (7.10), then (4.14)
          const before = { linear: w * found.linear + c, norm: w * found.norm, trace: w * found.trace, rate: w * found.rate + c };
          const seen = moments(layer, w * found.diagonal + c);
          const first = firstDerivative(seen) ** 2, second = secondDerivative(seen) ** 2;
          found = {
            linear: first * before.linear,
            norm: first * before.norm + (second * before.rate ** 2) / 4,
            trace: first * before.trace + (second * before.linear ** 2) / 2,
            diagonal: seen.energy,
            rate: seen.slope * before.rate,
          };
        });
        return found;
      },
    };
  }

  // The DEQ, its twins from a row of the table, and one plain layer of its activation.
  function models(name, sigmaA2, row) {
    const shape = { value: activations[name].value, kinks: activations[name].kinks };
    const { weights, inject, amplitudes, offsets } = row.injected;
    return {
      deq: deq(shape, sigmaA2),
      papers: explicit(row.papers.map(tabulatedLayer)),
      injected: explicit(amplitudes.map((amplitude, l) => scaled(shape, amplitude, offsets[l])), weights, [0, ...inject]),
      plain: explicit([scaled(shape, 1, -mean(moments(shape, 1)))]),
    };
  }

  // --- two classes -----------------------------------------------------------------------------------------------
  // x ~ N(mu_a/sqrt(p), c_a I/p), mu = -+distance/2 along one direction, c = 1 -+ spread/sqrt(p), as many of each.

  function mixture(p, distance, spread) {
    return { p, means: [-distance / 2, distance / 2], variances: [1 - spread / Math.sqrt(p), 1 + spread / Math.sqrt(p)] };
  }

  return { activations, models, mixture, normalCdf };
})();

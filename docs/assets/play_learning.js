// Accuracy before training, on two Gaussian classes: docs/theory.md (11.7)-(11.14) for one output and infinite width.
window.playLearning = (function () {
  "use strict";
  const { times, dot, trace, zeros, solvePair, eigen, product, minimum } = window.playMatrices;
  const { normalCdf } = window.playTheory;

  // Gauss-Hermite rule of 7 points for the standard normal law: nodes, and shares of each.
  const NODES = [-3.7504397177257425, -2.366759410734541, -1.1544053947399682, 0,
    1.1544053947399682, 2.366759410734541, 3.7504397177257425];
  const SHARES = [5.48268855972218e-4, 3.0757123967586536e-2, 0.24012317860501273, 16 / 35,
    0.24012317860501273, 3.0757123967586536e-2, 5.48268855972218e-4];
  const ROUNDING = 1e-11;
  const CLASSES = [0, 1];
  const TARGETS = [-1, 1];

  // Squared norms in a class, (11.8): mean, variance, and nodes of a log-normal law with these.
  function norms({ p, means, variances }) {
    return CLASSES.map((a) => {
      const mean = variances[a] + means[a] ** 2 / p;
      const variance = (2 * variances[a] ** 2 + (4 * means[a] ** 2 * variances[a]) / p) / p;
      const width = Math.sqrt(Math.log1p(variance / mean ** 2));
      return { mean, variance, nodes: NODES.map((node) => mean * Math.exp(width * node - width ** 2 / 2)) };
    });
  }

  // Functions h of the norm with g_0(s, t) = h(s) h(t): their means, covariances and mean slopes in each class.
  function radial(model, law) {
    const nodes = law.flatMap((one) => one.nodes), number = NODES.length;
    const roots = nodes.map((_, k) => Math.sqrt(SHARES[k % number]));
    const matrix = zeros(nodes.length, nodes.length);
    for (let i = 0; i < nodes.length; i++) {
      for (let j = 0; j <= i; j++) {
        matrix[i][j] = matrix[j][i] = roots[i] * roots[j] * model.series(nodes[i], nodes[j])[0];
      }
    }
    const largest = Math.max(...nodes.map(model.diagonal));
    const { values, vectors } = eigen(matrix);
    const kept = values.map((_, k) => k).filter((k) => values[k] > ROUNDING * largest);
    const functions = kept.map((k) => nodes.map((_, i) => (vectors[i][k] * Math.sqrt(values[k])) / roots[i]));
    return CLASSES.map((a) => {
      const own = functions.map((values) => values.slice(a * number, (a + 1) * number));
      const mean = own.map((values) => dot(SHARES, values));
      const covariance = own.map((left, i) => own.map((right, j) =>
        SHARES.reduce((sum, share, k) => sum + share * (left[k] - mean[i]) * (right[k] - mean[j]), 0)));
      const slope = own.map((values) =>
        SHARES.reduce((sum, share, k) => sum + share * (law[a].nodes[k] - law[a].mean) * values[k], 0) / law[a].variance);
      return { mean, covariance, slope };
    });
  }

  // f_a with g_k(s, t) = f_a f_b at the typical norms of the classes, (11.8).
  function factors(model, law, power) {
    const typical = (law[0].mean + law[1].mean) / 2;
    const scale = Math.sqrt(Math.max(model.series(typical, typical)[power], 0));
    return law.map((one) => (scale > 0 ? model.series(one.mean, typical)[power] / scale : 0));
  }

  // Products of two coordinates, (11.9): the part along the second moments of the classes, and how long the rest is.
  function pairs({ p, means, variances }, weight) {
    const product = (a, b) => (variances[a] * variances[b]) / p; // tr C_a C_b
    const inner = (a, b) => (means[a] * means[b]) / p;
    const form = (a, b) => (variances[b] * inner(a, a)) / p; // mu_a C_b mu_a
    const gram = CLASSES.map((a) => CLASSES.map((b) => product(a, b) + form(a, b) + form(b, a) + inner(a, b) ** 2));
    const { values, vectors } = eigen(gram);
    const kept = weight.some((value) => value !== 0) ? [0, 1].filter((k) => values[k] > ROUNDING * values[1]) : [];
    const lengths = CLASSES.map((a) => variances[a] ** 2 + product(a, a));
    const overlap = CLASSES.reduce((sum, a) => sum + CLASSES.reduce((inside, b) => inside + product(a, b) ** 2, 0), 0) / 2;
    const number = ((lengths[0] + lengths[1]) / 2) ** 2 / overlap;
    return {
      means: CLASSES.map((a) => kept.map((k) => weight[a] * vectors[a][k] * Math.sqrt(values[k]))),
      projection: CLASSES.map((b) => kept.map((k) => vectors[b][k] / Math.sqrt(values[k]))),
      rest: kept.length ? [{ number, variances: CLASSES.map((a) => (weight[a] ** 2 * lengths[a]) / number) }] : [],
    };
  }

  // Features of a kernel on the mixture: means, covariances, many other directions, and a tail, for each class. The last
  // feature is the constant 1 of the readout's bias.
  function features(model, mixture) {
    const { p, means, variances } = mixture;
    const law = norms(mixture);
    const linear = factors(model, law, 1), quadratic = factors(model, law, 2);
    const byNorm = radial(model, law), products = pairs(mixture, quadratic);
    const rest = [{ number: p - 1, variances: CLASSES.map((a) => (linear[a] ** 2 * variances[a]) / p) }, ...products.rest];
    const classes = CLASSES.map((a) => {
      const { mean, covariance, slope } = byNorm[a];
      const radials = mean.length, forms = products.means[a].length, size = 2 + radials + forms;
      const place = means[a] / Math.sqrt(p), variance = variances[a] / p;
      const project = products.projection.map((row) => row.map((value) => quadratic[a] * value));
      const matrix = zeros(size, size);
      matrix[0][0] = linear[a] ** 2 * variance;
      for (let i = 0; i < radials; i++) {
        matrix[0][1 + i] = matrix[1 + i][0] = linear[a] * 2 * variance * place * slope[i];
        for (let j = 0; j < radials; j++) matrix[1 + i][1 + j] = covariance[i][j];
      }
      // Sums over b of the second moments B_b, projected: across the direction of the means, and along it, (11.25).
      const across = project[0].map((_, k) => CLASSES.reduce((sum, b) => sum + (variances[b] / p) * project[b][k], 0));
      const along = project[0].map((_, k) =>
        CLASSES.reduce((sum, b) => sum + ((variances[b] + means[b] ** 2) / p) * project[b][k], 0));
      const spread = 2 * variance ** 2, shift = 4 * place ** 2 * variance;
      for (let k = 0; k < forms; k++) {
        const at = 1 + radials + k;
        matrix[0][at] = matrix[at][0] = linear[a] * 2 * variance * place * along[k];
        const withNorm = spread * ((p - 1) * across[k] + along[k]) + shift * along[k];
        for (let i = 0; i < radials; i++) matrix[1 + i][at] = matrix[at][1 + i] = slope[i] * withNorm;
        for (let m = 0; m < forms; m++) {
          matrix[at][1 + radials + m] = spread * (p - 1) * across[k] * across[m] + (spread + shift) * along[k] * along[m];
        }
      }
      const centre = [linear[a] * place, ...mean, ...products.means[a], 1];
      const moment = matrix.map((row, i) => row.map((value, j) => value + centre[i] * centre[j]));
      const length = trace(moment) - 1 + rest.reduce((sum, one) => sum + one.number * one.variances[a], 0);
      const diagonal = dot(SHARES, law[a].nodes.map(model.diagonal));
      return { mean: centre, covariance: matrix, flat: Float64Array.from(moment.flat()), length, tail: Math.max(diagonal - length, 0) };
    });
    const length = classes[0].mean.length ** 2;
    const work = { resolvent: new Float64Array(length), products: [new Float64Array(length), new Float64Array(length)] };
    return { classes, rest, work };
  }

  // R and its traces with the second moments S_a at given effective numbers eta, (11.10); the bias, the last feature, is
  // not penalised. Plain loops: a curve asks for it some thousand times.
  function resolvent(known, eta) {
    const { classes, rest } = known;
    const size = classes[0].mean.length;
    const [left, right] = classes.map((one) => one.flat);
    const R = known.work.resolvent;
    for (let k = 0; k < size * size; k++) R[k] = eta[0] * left[k] + eta[1] * right[k];
    for (let k = 0; k < size - 1; k++) R[k * size + k] += 1;
    invertPositive(R, size);
    const seen = known.work.products;
    product(left, R, size, seen[0]);
    product(right, R, size, seen[1]);
    const first = [0, 0], second = [[0, 0], [0, 0]];
    for (const a of CLASSES) {
      for (let i = 0; i < size; i++) first[a] += seen[a][i * size + i];
      for (const b of CLASSES) {
        for (let i = 0; i < size; i++) {
          for (let j = 0; j < size; j++) second[a][b] += seen[a][i * size + j] * seen[b][j * size + i];
        }
      }
    }
    for (const { number, variances } of rest) {
      const other = 1 / (1 + eta[0] * variances[0] + eta[1] * variances[1]);
      for (const a of CLASSES) {
        first[a] += number * variances[a] * other;
        for (const b of CLASSES) second[a][b] += number * variances[a] * variances[b] * other * other;
      }
    }
    return { R, first, second };
  }

  // The inverse of a positive definite matrix in its own place, by Gauss and Jordan without pivots.
  function invertPositive(a, size) {
    for (let k = 0; k < size; k++) {
      const scale = 1 / a[k * size + k];
      a[k * size + k] = 1;
      for (let j = 0; j < size; j++) a[k * size + j] *= scale;
      for (let i = 0; i < size; i++) {
        if (i === k) continue;
        const factor = a[i * size + k];
        a[i * size + k] = 0;
        for (let j = 0; j < size; j++) a[i * size + j] -= factor * a[k * size + j];
      }
    }
  }

  function timesFlat(a, x) {
    const size = x.length, result = new Array(size).fill(0);
    for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) result[i] += a[i * size + j] * x[j];
    return result;
  }

  // The effective numbers of samples: eta_a (ridge + tail_a + tr S_a R) = n_a, by Newton's method in log eta.
  function effectiveNumbers(known, sizes, ridge) {
    const floor = known.classes.map((one) => ridge + one.tail);
    let eta = sizes.map((n, a) => n / (floor[a] + known.classes[a].length));
    let least = Infinity;
    for (let step = 0; step < 500; step++) {
      const { first, second } = resolvent(known, eta);
      const gap = eta.map((value, a) => Math.log(sizes[a] / (floor[a] + first[a]) / value));
      const size = Math.max(Math.abs(gap[0]), Math.abs(gap[1]));
      if (size <= 1e-12) break;
      let change = gap;
      if (size < least) {
        least = size;
        const slope = CLASSES.map((a) => CLASSES.map((b) => (a === b ? 1 : 0) - (second[a][b] * eta[b]) / (floor[a] + first[a])));
        change = solvePair(slope, gap);
      }
      eta = eta.map((value, a) => value * Math.exp(change[a]));
    }
    return eta;
  }

  // Accuracy and squared error of ridge regression on n samples, (11.12)-(11.14).
  function outcome(known, n, ridge) {
    const sizes = [n / 2, n / 2];
    const eta = effectiveNumbers(known, sizes, ridge);
    const { R, second } = resolvent(known, eta);
    const { classes } = known;
    const weights = timesFlat(R, classes[0].mean.map((_, i) =>
      eta[1] * TARGETS[1] * classes[1].mean[i] + eta[0] * TARGETS[0] * classes[0].mean[i]));
    const left = classes.map((one, a) => TARGETS[a] - dot(one.mean, weights));
    const applied = classes.map((one) => times(one.covariance, weights));
    const spread = applied.map((vector) => dot(vector, weights));
    const bias = spread.map((value, a) => value + left[a] ** 2);
    const rates = eta.map((value, a) => value ** 2 / sizes[a]);
    // The sizes of the classes are not random, (11.13).
    const directions = classes.map((one, b) => timesFlat(R, applied[b].map((value, i) => value - left[b] * one.mean[i])));
    const images = classes.map((one) => timesFlat(R, one.mean));
    const form = (one, vector) => dot(vector, timesFlat(one.flat, vector));
    const fixed = classes.map((one) => CLASSES.reduce((sum, b) =>
      sum + rates[b] * (form(one, directions[b]) - 2 * left[b] ** 2 * form(one, images[b])), 0));
    const system = CLASSES.map((a) => CLASSES.map((b) => (a === b ? 1 : 0) - second[a][b] * rates[b]));
    const errors = solvePair(system, bias.map((value, a) => value + fixed[a]));
    const accuracies = CLASSES.map((a) => {
      const variance = spread[a] + errors[a] - bias[a], score = TARGETS[a] * dot(classes[a].mean, weights);
      return variance > 0 ? normalCdf(score / Math.sqrt(variance)) : 0.5;
    });
    return { accuracy: (accuracies[0] + accuracies[1]) / 2, error: (errors[0] + errors[1]) / 2, ridge };
  }

  // Powers of ten between which the best ridge is looked for, times the diagonal of the kernel.
  const POWERS = [-9, 5];

  // The ridge of least squared error; `near` is a power of ten to begin with.
  function best(known, n, near) {
    const scale = known.classes.reduce((sum, one) => sum + (one.length + one.tail) / 2, 0);
    const at = (power) => outcome(known, n, scale * 10 ** power);
    const [lowest, highest] = POWERS;
    let middle = Math.min(Math.max(Math.round(near), lowest + 1), highest - 1);
    let error = at(middle).error;
    for (const direction of [-1, 1]) {
      while (middle + direction > lowest && middle + direction < highest) {
        const next = at(middle + direction).error;
        if (next >= error) break;
        [middle, error] = [middle + direction, next];
      }
    }
    const [power] = minimum((place) => at(place).error, middle - 1, middle + 1, 13);
    return { power, ...at(power) };
  }

  // Predicted accuracy for each n, in ascending order, at the best ridge.
  function learningCurve(model, mixture, sizes) {
    const known = features(model, mixture);
    let near = -8;
    return sizes.map((n) => {
      const found = best(known, n, near);
      near = found.power;
      return found;
    });
  }

  return { learningCurve, features, outcome };
})();

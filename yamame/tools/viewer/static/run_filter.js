// The filter of the table of runs: words, and comparisons such as learning_rate<0.001 or tag=baseline.

const COMPARISON = /^([\w.-]+?)(!=|<=|>=|=|<|>)(.+)$/;
const OWN = {
  state: (run) => [run.state], recipe: (run) => [run.recipe], task: (run) => [run.task], tag: (run) => run.tags,
  steps: (run) => [run.env_steps], return: (run) => [run.return_mean], success: (run) => [run.success_rate],
};

/** [{word}] or [{word, name, operator, value}]; a part with spaces is in quotes. */
export function parseFilter(text) {
  return (text.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []).map((part) => {
    const word = part.replaceAll('"', "").toLowerCase(), [, name, operator, value] = word.match(COMPARISON) ?? [];
    return name ? { word, name, operator, value } : { word };
  });
}

/** The hyperparameters that comparisons name, by whole path or its end; those of a run itself come first. */
export function pathsOf({ name }, paths) {
  if (!name || Object.hasOwn(OWN, name)) return [];
  return paths.filter((path) => `.${path.toLowerCase()}`.endsWith(`.${name}`));
}

/** Whether a run has all words and one value for each comparison. valueOf(run, path): a hyperparameter as JSON. */
export function matches(run, conditions, paths, valueOf) {
  const text = [run.name, run.recipe, run.task, run.state, run.reason, run.note, ...run.tags].join(" ").toLowerCase();
  return conditions.every((condition) => {
    const { word, name, operator, value } = condition, found = pathsOf(condition, paths);
    const values = name && Object.hasOwn(OWN, name) ? OWN[name](run) : found.map((path) => plain(valueOf(run, path)));
    if (!values.length && !(name === "tag")) return text.includes(word);
    return operator === "!=" ? !values.some((one) => compares(one, "=", value)) : values.some((one) => compares(one, operator, value));
  });
}

function compares(one, operator, value) {
  if (one === null || one === undefined) return false;
  const a = Number(one), b = Number(value), areNumbers = one !== "" && value !== "" && !Number.isNaN(a) && !Number.isNaN(b);
  if (operator === "=") return areNumbers ? a === b : String(one).toLowerCase() === value;
  if (!areNumbers) return false;
  return { "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b }[operator];
}

/** A value as it is shown: text without quotes, a class without its module. */
export function plain(json) {
  if (json === undefined) return undefined;
  return /^".*"$/s.test(json) ? json.slice(1, -1).replace(/^[\w.]+:(?=\w+$)/, "") : json;
}

// An agent of `yamame export`, run by onnxruntime-web.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";

ort.env.wasm.numThreads = 1;

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array, bool: Uint8Array,
};

export class Policy {
  /** Load `url` and the manifest beside it, which `yamame export` wrote for one environment. */
  static async load(url) {
    const [manifest, session] = await Promise.all([
      fetch(`${url}.json`).then((response) => response.json()),
      ort.InferenceSession.create(url),
    ]);
    return new Policy(manifest, session);
  }

  constructor(manifest, session) {
    this.manifest = manifest;
    this.session = session;
    this.reset();
  }

  /** Start a trial. */
  reset() {
    this.time = 0n;
    this.seed = BigInt(Math.floor(Math.random() * (2 ** 31 - 1)));
    const fedBack = this.manifest.inputs.filter(({ name }) => name in this.manifest.feedback);
    this.memory = Object.fromEntries(fedBack.map((spec) => [spec.name, tensor(spec)]));
  }

  /** Return the outputs of one step; `inputs` are arrays of numbers by name. */
  async step(inputs) {
    const values = {
      previous_reward: [0], episode_start: [0], deterministic: [1], time: [this.time], seed: [this.seed], ...inputs,
    };
    const feeds = { ...this.memory };
    for (const spec of this.manifest.inputs) {
      feeds[spec.name] ??= tensor(spec, values[spec.name]);
    }
    const outputs = await this.session.run(feeds);
    this.memory = Object.fromEntries(
      Object.entries(this.manifest.feedback).map(([input, output]) => [input, outputs[output]]),
    );
    this.time += 1n;
    return outputs;
  }
}

/** Make a tensor of the type and shape of an input; zeros without values. */
function tensor({ dtype, shape }, values) {
  const size = shape.reduce((product, length) => product * length, 1);
  return new ort.Tensor(dtype, values ? ARRAYS[dtype].from(values) : new ARRAYS[dtype](size), shape);
}

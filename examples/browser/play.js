// A passive T-maze, as yamame.envs.tmaze has it, and the agent in it.
import { Policy } from "./policy.js";

const MOVES = [[1, 0], [0, 1], [-1, 0], [0, -1]]; // right, up, left, down
const TRIALS = 20;

class TMaze {
  constructor(corridor, goal) {
    Object.assign(this, { corridor, goal, x: 0, y: 0, time: 0 });
  }

  observe() {
    return [this.x === this.corridor ? 1 : 0, this.time === 0 ? this.goal : this.y];
  }

  /** Move, and return the reward. */
  step(action) {
    const [x, y] = [this.x + MOVES[action][0], this.y + MOVES[action][1]];
    if (x >= 0 && x <= this.corridor && (y === 0 || (x === this.corridor && Math.abs(y) === 1))) {
      [this.x, this.y] = [x, y];
    }
    this.time += 1;
    this.ended = this.time > this.corridor;
    if (this.ended) return this.y === this.goal ? 1 : 0;
    return action === 0 ? 0 : -1 / this.corridor;
  }
}

/** Play one trial; return its actions and whether the agent turned to the goal. */
export async function playTrial(policy, goal, show = () => {}) {
  const maze = new TMaze(policy.manifest.horizon - 1, goal);
  const actions = [];
  let reward = 0;
  policy.reset();
  while (!maze.ended) {
    await show(maze);
    const { action } = await policy.step({ "observation/observation": maze.observe(), previous_reward: [reward] });
    actions.push(Number(action.data[0]));
    reward = maze.step(actions.at(-1));
  }
  await show(maze);
  return { actions, solved: reward === 1 };
}

function draw(canvas, maze) {
  const pixels = 32;
  canvas.width = (maze.corridor + 1) * pixels;
  canvas.height = 3 * pixels;
  const context = canvas.getContext("2d");
  const cell = (x, y, color, margin = 1) => {
    context.fillStyle = color;
    context.fillRect(x * pixels + margin, (1 - y) * pixels + margin, pixels - 2 * margin, pixels - 2 * margin);
  };
  for (let x = 0; x <= maze.corridor; x += 1) cell(x, 0, "#ddd");
  for (const y of [-1, 1]) cell(maze.corridor, y, y === maze.goal ? "#228833" : "#ddd");
  cell(maze.x, maze.y, "#cc3311", 6);
  if (maze.time === 0) {
    context.fillStyle = "#000";
    context.font = "24px sans-serif";
    context.fillText(maze.goal > 0 ? "↑" : "↓", 8, maze.goal > 0 ? 24 : 3 * pixels - 8);
  }
}

const canvas = document.getElementById("maze");
const result = document.getElementById("result");
try {
  const policy = await Policy.load("policy.onnx");
  let solved = 0;
  for (let trial = 1; trial <= TRIALS; trial += 1) {
    const { solved: success } = await playTrial(policy, Math.random() < 0.5 ? 1 : -1, async (maze) => {
      draw(canvas, maze);
      await new Promise((done) => setTimeout(done, 20));
    });
    solved += success;
    result.textContent = `Solved ${solved} of ${trial} trials`;
  }
} catch (error) {
  result.textContent = `The agent cannot be loaded: ${error.message}`;
}

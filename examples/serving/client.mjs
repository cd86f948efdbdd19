// A client of `yamame serve` for Node 18 and newer, Deno and Bun. Copy this file into your program.
//
//     const policy = await PolicyClient.connect("http://127.0.0.1:8000");
//     let action = await policy.act(observation);
//     action = await policy.act(observation, { reward: 1.0 });
//     policy.reset();  // before the first observation of the next trial
//     await policy.close();
//
// In a browser it works from pages that a reverse proxy serves under the address of the service: others are refused.

/** The service refused a request: `status`, and one line. */
export class PolicyError extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

/** One session of a service, with a memory of its own. Wait for an answer before the next request. */
export class PolicyClient {
    #address;
    #headers;
    #session;
    #resets = false;

    /** Index in its trial of the action that `act` returned. */
    time = -1;

    /**
     * Open a session.
     * @param {string} address that `yamame serve` prints, such as http://127.0.0.1:8000
     * @param {{token?: string}} options the token that it prints, if it does
     */
    static async connect(address, { token = "" } = {}) {
        const client = new PolicyClient();
        client.#address = address.replace(/\/+$/, "");
        client.#headers = token ? { Authorization: `Bearer ${token}` } : {};
        client.#session = (await client.#request("POST", "/sessions")).session;
        return client;
    }

    /**
     * Return the next action: a number, or nested arrays of numbers.
     * @param observation numbers, nested arrays (typed ones too), and objects of them, in the space of the policy
     * @param {{reward?: number, episode_start?: boolean, deterministic?: boolean, action_mask?: boolean[]}} options
     *     `reward` of the previous action; whether a further episode of the trial starts; whether to take the most likely
     *     action (unset: as in the evaluation after training); allowed actions, if the policy was trained with masks
     * @throws {PolicyError} The memory of the session is as before; after a failed reset, it is empty.
     */
    async act(observation, options = {}) {
        const body = { observation, ...options, reset: this.#resets };
        const answer = await this.#request("POST", `/sessions/${this.#session}/act`, body);
        this.#resets = false;
        this.time = answer.time;
        return answer.action;
    }

    /** Start a new trial: the memory is cleared before the next observation. */
    reset() {
        this.#resets = true;
    }

    /** Close the session, so that another client can have its place. */
    async close() {
        await this.#request("DELETE", `/sessions/${this.#session}`);
    }

    async #request(method, path, body) {
        const content = body === undefined ? undefined : JSON.stringify(body, toJson);
        const response = await fetch(this.#address + path, { method, body: content, headers: this.#headers });
        const text = await response.text();
        if (!response.ok) {
            throw new PolicyError(response.status, JSON.parse(text).error);
        }
        return text ? JSON.parse(text) : undefined;
    }
}

/** Typed arrays as arrays. */
function toJson(_, value) {
    return ArrayBuffer.isView(value) ? Array.from(value) : value;
}

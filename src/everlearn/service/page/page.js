"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const RUN_PICTURES = ["likelihood", "forgetting", "throughput"];
  const MODEL_PICTURES = ["components", "weights"];
  const PRINCIPAL = "";
  const MOST_EVENTS = 50;
  const FAST = 700;
  const SLOW = 2000;

  const state = { name: null, columns: [], stream: null, stale: {}, due: {}, busy: false, answers: 0, tab: null };

  // -- talking to the service ----------------------------------------------------------------------

  function headers(extra) {
    const token = sessionStorage.getItem("token");
    return token ? { ...extra, Authorization: `Bearer ${token}` } : { ...extra };
  }

  async function call(path, options = {}) {
    // Relative to the page, so that it works under any path of a proxy.
    const response = await fetch(path.slice(1), { ...options, headers: headers(options.headers) });
    if (response.status === 401) {
      await login();
      return call(path, options);
    }
    if (!response.ok && response.status !== 304) {
      const problem = await response.json().catch(() => ({ detail: response.statusText }));
      throw Object.assign(new Error(problem.detail), { status: response.status });
    }
    return response;
  }

  const get = async (path) => (await call(path)).json();
  const post = async (path, body) =>
    (await call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
  const of = (name, rest = "") => `/models/${encodeURIComponent(name)}${rest}`;

  let asking = null;
  function login() {
    asking ??= new Promise((resolve) => {
      by("login-note").textContent = sessionStorage.getItem("token")
        ? "That token was not the right one. It is kept in this tab only."
        : "It is kept in this tab only.";
      by("login").showModal();
      by("login-form").onsubmit = (event) => {
        event.preventDefault();
        sessionStorage.setItem("token", by("token").value);
        by("token").value = "";
        by("login").close();
        asking = null;
        resolve();
      };
      by("login").oncancel = (event) => event.preventDefault();
    });
    return asking;
  }

  function say(kind, text) {
    if (by("state").textContent !== text) by("state").textContent = text;
    by("state").dataset.state = kind;
  }

  // -- choosing a model ----------------------------------------------------------------------------

  async function listModels() {
    const { models, next } = await get("/models");
    const names = models.map((model) => model.name);
    // Of very many models the first are listed; any other is found by its name behind the #.
    const asked = decodeURIComponent(location.hash.slice(1));
    if (next !== null && asked > next && (await get(of(asked)).catch(() => null))) names.push(asked);
    fill(by("model"), names.map((name) => [name, name]), state.name);
    by("choice").hidden = names.length < 2;
    by("empty").hidden = names.length > 0;
    if (names.length === 0 || state.tab === null) showTab(names.length === 0 ? null : "model");
    if (names.length === 0) {
      say("waiting", "waiting for the first rows");
      by("example").textContent = example();
      state.name = null;
      return;
    }
    const wanted = decodeURIComponent(location.hash.slice(1));
    const newest = models.reduce((a, b) => (b.updated > a.updated ? b : a)).name;
    const name = names.includes(wanted) ? wanted : names.includes(state.name) ? state.name : newest;
    if (name !== state.name) await open(name);
  }

  function example() {
    const token = sessionStorage.getItem("token") ? ` \\\n  -H "Authorization: Bearer $TOKEN"` : "";
    return `curl ${new URL("models/machine/learn", document.baseURI)}${token} \\
  -H 'Content-Type: application/json' \\
  -d '{"columns": ["rpm", "torque"], "rows": [[900, 21.5], [905, 21.9]]}'`;
  }

  function fill(select, options, chosen) {
    const wanted = JSON.stringify(options);
    if (select.dataset.options !== wanted) {
      select.dataset.options = wanted;
      select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    }
    if (chosen !== null && options.some(([value]) => value === chosen)) select.value = chosen;
  }

  async function open(name) {
    state.name = name;
    state.columns = [];
    location.replace(`#${encodeURIComponent(name)}`);
    by("model").value = name;
    by("events").replaceChildren();
    document.title = `${name} · everlearn`;
    state.stream?.abort();
    state.due = { run: 0, model: 0 };
    follow(name);
    const watched = await machine.open(name, { call, post });
    by("tabs").hidden = !watched;
    showTab(watched ? "machine" : "model");
    await refresh();
  }

  // A machine that is watched has a page of its own; the model's inside is on the second tab.
  function showTab(tab) {
    state.tab = tab;
    document.body.dataset.tab = tab ?? "";
    by("machine").hidden = tab !== "machine";
    by("live").hidden = tab !== "model";
    for (const name of ["machine", "model"]) by(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
    if (tab === "model" && state.name) refresh().catch(() => {});
  }

  // -- the live stream -----------------------------------------------------------------------------

  async function follow(name) {
    const control = new AbortController();
    state.stream = control;
    let last = 0;
    for (let wait = 500; state.name === name && !control.signal.aborted; wait = Math.min(2 * wait, 8000)) {
      try {
        const response = await call(of(name, `/events?after=${last}`), { signal: control.signal });
        say("live", "live");
        wait = 500;
        for await (const event of messages(response.body)) {
          if (event.id) last = event.id;
          if (event.kind === "progress") refresh().catch(() => {});
          else addEvent(event);
        }
      } catch (error) {
        if (control.signal.aborted) return;
        if (error.status === 404) return listModels();
      }
      say("lost", "reconnecting");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async function* messages(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const field = (key) => part.match(new RegExp(`^${key}: (.*)$`, "m"))?.[1];
        if (field("data")) yield { kind: field("event"), id: Number(field("id") ?? 0), data: JSON.parse(field("data")) };
      }
    }
  }

  function addEvent({ kind, data }) {
    const mark = Object.assign(document.createElement("span"), { className: "mark" });
    mark.dataset.kind = kind;
    const row = document.createElement("tr");
    const what = document.createElement("td");
    what.append(mark, kind.replaceAll(/[-_]/g, " "));
    if (kind === "anomaly") {
      const why = `p = ${data.value < 1e-3 ? data.value.toExponential(1) : data.value.toPrecision(2)}: ${data.text ?? data.column}`;
      what.append(Object.assign(document.createElement("div"), { className: "soft why", textContent: why }));
      // One that goes on comes again, as it is now.
      row.dataset.anomaly = data.row;
      by("events").querySelector(`[data-anomaly="${data.row}"]`)?.remove();
    }
    const rows = data.last > data.row ? `${whole.format(data.row)} to ${whole.format(data.last)}` : whole.format(data.row);
    row.append(what, cell(rows), cell(new Date(1000 * data.time).toLocaleTimeString()));
    by("events").prepend(row);
    while (by("events").children.length > MOST_EVENTS) by("events").lastElementChild.remove();
  }

  const cell = (text) => Object.assign(document.createElement("td"), { textContent: text });

  // -- drawing -------------------------------------------------------------------------------------

  // The run is drawn often and the model, which costs more, seldom; what came meanwhile is drawn afterwards.
  async function refresh() {
    state.stale = { run: true, model: true };
    if (state.busy) return;
    state.busy = true;
    try {
      while ((state.stale.run || state.stale.model) && !document.hidden && state.tab === "model") {
        const run = state.stale.run ? state.due.run : Infinity;
        const model = state.stale.model ? state.due.model : Infinity;
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, Math.min(run, model) - performance.now())));
        await (run <= model ? drawRun() : drawModel());
      }
    } finally {
      state.busy = false;
    }
  }

  async function drawRun() {
    const name = state.name;
    state.stale.run = false;
    state.due.run = performance.now() + FAST;
    const summary = await get(of(name));
    if (state.name !== name) return;
    showSummary(summary);
    await Promise.all(RUN_PICTURES.map((picture) => draw(picture)));
  }

  async function drawModel() {
    state.stale.model = false;
    state.due.model = performance.now() + SLOW;
    await Promise.all([...MODEL_PICTURES.map((picture) => draw(picture)), answer()]);
  }

  // Of several megabytes, and the page of a machine does without: fetched when the first picture is drawn.
  let plotly = null;
  function loadPlotly() {
    plotly ??= new Promise((resolve, reject) => {
      document.head.append(Object.assign(document.createElement("script"), { src: "static/plotly.js", onload: resolve, onerror: reject }));
    }).catch((error) => { plotly = null; throw error; });
    return plotly;
  }

  async function show(element, figure) {
    await loadPlotly();
    await pictures.draw(element, figure);
  }

  async function draw(picture) {
    const name = state.name;
    const [x, y] = [by("axis-x").value, by("axis-y").value];
    const chosen = picture === "components" && x !== PRINCIPAL && y !== PRINCIPAL && x !== y;
    const query = chosen ? `?${new URLSearchParams({ x, y })}` : "";
    try {
      const figure = await get(of(name, `/pictures/${picture}${query}`));
      if (state.name === name) await show(by(picture), figure);
    } catch (error) {
      if (error.status !== 409) throw error; // nothing learned yet
    }
  }

  function showSummary(summary) {
    by("name").textContent = summary.name;
    const columns = `${summary.columns.length} column${summary.columns.length === 1 ? "" : "s"}`;
    const source = summary.takes_rows ? "" : ", learned from its own source";
    by("kind").textContent = `${summary.kind}, ${columns}${source}`;
    const text = (value, format) => (value === null ? "–" : format.format(value));
    by("rows").textContent = text(summary.rows, whole);
    by("rows_per_second").textContent = text(summary.rows_per_second, whole);
    // A detector's scores are p-values, and no densities.
    const detects = summary.kind === "AnomalyDetector";
    by("score").textContent = detects ? "mean log p-value" : "log-likelihood";
    by("h-likelihood").textContent = `${detects ? "Mean log p-value" : "Log-likelihood"} of rows before they are learned`;
    by("strange").textContent = detects ? "anomalies" : "novelties";
    by("changed").textContent = detects ? "new normals" : "changes";
    by("log_likelihood").textContent = text(detects ? summary.mean_log_p_value : summary.log_likelihood, number);
    by("components_").textContent = text(summary.components, whole);
    by("novelties").textContent = text(summary.novelties, whole);
    by("changes").textContent = text(summary.changes, whole);
    by("waiting").textContent = text(summary.waiting, whole);
    state.columns = summary.columns;
    showColumns();
  }

  function showColumns() {
    const names = state.columns.map((column) => column.name);
    const axes = [[PRINCIPAL, "principal"], ...names.map((name) => [name, name])];
    fill(by("axis-x"), axes, by("axis-x").value);
    fill(by("axis-y"), axes, by("axis-y").value);
    fill(by("target"), names.map((name) => [name, name]), by("target").value || names[names.length - 1]);
    const wanted = JSON.stringify([state.name, names, by("target").value]);
    if (by("known").dataset.columns === wanted) return;
    by("known").dataset.columns = wanted;
    const known = given();
    by("known").replaceChildren(...state.columns.filter(({ name }) => name !== by("target").value).map((column, i) => input(column, i, known)));
  }

  // -- asking --------------------------------------------------------------------------------------

  function input({ name, mean, std }, i, known) {
    const line = Object.assign(document.createElement("div"), { className: "known" });
    const label = Object.assign(document.createElement("label"), { textContent: name, htmlFor: `known-${i}`, title: name });
    const range = Object.assign(document.createElement("input"), { type: "range", step: "any" });
    const value = Object.assign(document.createElement("input"), { type: "number", step: "any", id: `known-${i}`, placeholder: "unknown" });
    const [centre, width] = [mean ?? 0, 3 * (std || 1)];
    Object.assign(range, { min: centre - width, max: centre + width, value: centre });
    range.setAttribute("aria-label", `${name}, slider`);
    value.dataset.column = name;
    if (name in known) range.value = value.value = known[name];
    const mark = () => (line.dataset.known = String(value.value !== ""));
    range.oninput = () => { value.value = number.format(range.value).replaceAll(",", ""); mark(); ask(); };
    value.oninput = () => { if (value.value !== "") range.value = value.value; mark(); ask(); };
    line.append(label, range, value);
    mark();
    return line;
  }

  function given() {
    const values = [...by("known").querySelectorAll("input[type=number]")].filter((input) => input.value !== "");
    return Object.fromEntries(values.map((input) => [input.dataset.column, input.valueAsNumber]));
  }

  let soon = 0;
  function ask() {
    clearTimeout(soon);
    soon = setTimeout(answer, 120);
  }

  async function answer() {
    const [name, target, number_] = [state.name, by("target").value, ++state.answers];
    if (!name || !target) return;
    try {
      const figure = await post(of(name, "/pictures/density"), { rows: [given()], target });
      if (number_ !== state.answers || name !== state.name) return;
      by("answer").textContent = figure.layout.meta.alt;
      await show(by("density"), figure);
    } catch (error) {
      if (error.status === 422) by("answer").textContent = error.message;
      else if (error.status !== 409) throw error;
    }
  }

  // -- beginning -----------------------------------------------------------------------------------

  machine.begin();
  for (const name of ["machine", "model"]) by(`tab-${name}`).onclick = () => showTab(name);
  by("model").onchange = (event) => open(event.target.value);
  by("target").onchange = () => { showColumns(); answer(); };
  for (const id of ["axis-x", "axis-y"]) by(id).onchange = () => draw("components");
  by("ask").onsubmit = (event) => { event.preventDefault(); answer(); };
  by("ask").onreset = () => setTimeout(() => { by("known").dataset.columns = ""; showColumns(); answer(); });
  addEventListener("hashchange", () => listModels());
  document.addEventListener("visibilitychange", () => { if (!document.hidden && state.name) refresh().catch(() => {}); });

  const look = () => listModels().catch(() => say("lost", "the service does not answer"));
  look();
  setInterval(look, 3000);
})();

"use strict";
// The machine that a watcher looks after. page.js chooses the model and talks to the service; this file draws.
const machine = (() => {
  const by = (id) => document.getElementById(id);
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const HOUR = 3600;
  const TODAY = -1; // the length of this stretch is that since midnight
  const RANGES = [["1 h", HOUR], ["8 h", 8 * HOUR], ["1 d", 24 * HOUR], ["1 w", 168 * HOUR], ["today", TODAY], ["all", null]];
  const [WIDTH, HEIGHT] = [1000, 128];
  const SHORTEST = 60;
  const POLL = 2000;
  const MOST_EPISODES = 200;
  const SETTLED = 80; // milliseconds after the last turn of a wheel, when the service is asked

  // `begin` and `end` are null while the latest stretch of `length` is followed. `of` is the stretch that `shown` is of,
  // and `tag` the state of the machine that it shows.
  const view = { name: null, length: HOUR, begin: null, end: null, timer: 0, asked: 0, shown: null, of: "", tag: "", talk: null };

  function element(tag, fields = {}, ...children) {
    const found = Object.assign(document.createElement(tag), fields);
    found.append(...children);
    return found;
  }

  function svg(tag, attributes, ...children) {
    const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    found.append(...children);
    return found;
  }

  // -- asking ------------------------------------------------------------------------------------

  async function open(name, talk) {
    clearTimeout(view.timer);
    Object.assign(view, { name, talk, length: HOUR, begin: null, end: null, shown: null, of: "", tag: "" });
    await refresh();
    return view.shown?.watched ?? false;
  }

  async function refresh() {
    clearTimeout(view.timer);
    const [name, asked] = [view.name, ++view.asked];
    const query = new URLSearchParams();
    if (view.begin !== null) {
      query.set("begin", view.begin);
      query.set("end", view.end);
    } else if (view.length !== null) query.set("last", view.length === TODAY ? sinceMidnight() : view.length);
    const of = view.begin === null ? String(view.length) : String(query);
    const headers = {};
    // Of a stretch that is shown already, what is new is asked for: nothing at all while nothing has changed.
    if (view.shown?.watched && of === view.of) {
      headers["If-None-Match"] = view.tag;
      if (view.shown.cells.length > 1) {
        query.set("level", view.shown.level);
        query.set("after", view.shown.cells.at(-2)); // the last one may not have been complete
        query.set("since", view.shown.change);
      }
    }
    const response = await view.talk.call(`/models/${encodeURIComponent(name)}/watch?${query}`, { headers });
    const found = response.status === 304 ? null : await response.json();
    if (asked !== view.asked || name !== view.name) return;
    if (found !== null) {
      view.shown = found.newer ? extended(view.shown, found) : found;
      Object.assign(view, { of, tag: response.headers.get("ETag") ?? "" });
      if (!found.watched) return;
      draw(view.shown);
    }
    by("sensors").setAttribute("aria-busy", "false");
    view.timer = setTimeout(() => refresh().catch(() => { view.timer = setTimeout(refresh, POLL); }), POLL);
  }

  // What was shown, with the newest points and the episodes that have changed.
  function extended(old, found) {
    const [begin, end] = [old.cells.findIndex((cell) => cell >= found.cells[0]), old.cells.length];
    const kept = begin < 0 ? end : begin;
    const length = view.begin !== null ? null : view.length === TODAY ? sinceMidnight() : view.length;
    const from = length === null ? 0 : Math.max(0, old.places.findIndex((place) => place >= found.last - length));
    const joined = (a, b) => [...a.slice(from, kept), ...b];
    const sensors = found.sensors.map((sensor, i) => {
      const before = old.sensors[i] ?? Object.fromEntries(["mean", "least", "most", "low", "high"].map((key) => [key, old.places.map(() => null)]));
      return { name: sensor.name, ...Object.fromEntries(Object.entries(sensor).filter(([key]) => key !== "name").map(([key, values]) => [key, joined(before[key], values)])) };
    });
    const episodes = new Map([...old.episodes, ...found.episodes].map((episode) => [episode.number, episode]));
    const latest = [...episodes.values()].sort((a, b) => a.number - b.number).slice(-MOST_EPISODES);
    return { ...found, cells: joined(old.cells, found.cells), places: joined(old.places, found.places), sensors, episodes: latest };
  }

  async function mark(episode, verdict) {
    await view.talk.post(`/models/${encodeURIComponent(view.name)}/episodes/${episode}/mark`, { verdict });
    await refresh();
  }

  // -- the range of time -------------------------------------------------------------------------

  function bounds() {
    const { first, last } = view.shown;
    if (view.begin !== null) return [view.begin, view.end];
    const length = view.length === TODAY ? sinceMidnight() : view.length;
    return length === null ? [first, last] : [Math.max(first, last - length), last];
  }

  // Seconds since midnight by the clock of the stream; a day where it has no times.
  function sinceMidnight() {
    if (!view.shown?.has_times) return 24 * HOUR;
    const [sign, hours, minutes] = [view.shown.zone[0] === "-" ? -1 : 1, ...(view.shown.zone.slice(1).split(":").map(Number))];
    const offset = view.shown.zone ? sign * (hours * HOUR + minutes * 60) : 0;
    return Math.max((view.shown.last + offset) % (24 * HOUR), 1);
  }

  function go(begin, end) {
    const { first, last } = view.shown;
    const length = Math.min(Math.max(end - begin, view.shown.has_times ? SHORTEST : 20), last - first || 1);
    const start = Math.min(Math.max(begin, first), last - length);
    // At the newest end the page follows the stream again.
    if (start + length >= last - 1e-6) Object.assign(view, { length, begin: null, end: null });
    else Object.assign(view, { begin: start, end: start + length });
    moved();
  }

  // What is known is drawn at once in its new place; the service is asked when the wheel has come to rest.
  function moved() {
    showRanges();
    clearTimeout(view.timer);
    view.asked++; // what was asked before is not of this stretch
    by("sensors").setAttribute("aria-busy", "true");
    if (view.shown?.last != null) draw(view.shown);
    view.timer = setTimeout(() => refresh().catch(() => { view.timer = setTimeout(refresh, POLL); }), SETTLED);
  }

  function zoom(factor, share) {
    const [begin, end] = bounds();
    const middle = begin + share * (end - begin);
    go(middle - share * (end - begin) * factor, middle + (1 - share) * (end - begin) * factor);
  }

  function pan(share) {
    const [begin, end] = bounds();
    go(begin + share * (end - begin), end + share * (end - begin));
  }

  function showRanges() {
    for (const button of by("ranges").querySelectorAll("[data-length]")) {
      const length = button.dataset.length === "all" ? null : Number(button.dataset.length);
      button.setAttribute("aria-pressed", String(view.begin === null && view.length === length));
    }
  }

  function follow(drawing) {
    drawing.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / drawing.clientWidth);
    }, { passive: false });
    drawing.addEventListener("pointerdown", (event) => {
      drawing.setPointerCapture(event.pointerId);
      drawing.dataset.from = event.clientX;
    });
    drawing.addEventListener("pointerup", (event) => {
      const moved = (Number(drawing.dataset.from) - event.clientX) / drawing.clientWidth;
      if (Math.abs(moved) > 0.01) pan(moved);
    });
    drawing.addEventListener("dblclick", () => zoom(0.5, 0.5));
  }

  // -- drawing -----------------------------------------------------------------------------------

  function clock(place, { seconds = false, day = false } = {}) {
    if (!view.shown.has_times) return `row ${Math.round(place).toLocaleString("en")}`;
    const offset = view.shown.zone ? Number(`${view.shown.zone[0]}1`) * (60 * view.shown.zone.slice(1, 3) + 1 * view.shown.zone.slice(4, 6)) : 0;
    const text = new Date(1000 * (place + 60 * offset)).toISOString();
    return (day ? `${text.slice(5, 10)} ` : "") + text.slice(11, seconds ? 19 : 16);
  }

  // Marked for the browser's profiler, and for those who measure how long it takes.
  function draw(found) {
    performance.clearMeasures("draw");
    const start = performance.now();
    drawAll(found);
    performance.measure("draw", { start });
  }

  function drawAll(found) {
    by("banner").dataset.state = found.state;
    by("banner-words").textContent = found.words;
    document.title = `${found.words} · ${view.name}`;
    const latest = found.last === null ? "no rows yet" : `latest ${clock(found.last, { seconds: true })}`;
    by("banner-note").textContent = `${view.name}, ${found.rows.toLocaleString("en")} rows, ${latest}`;
    drawEpisodes(found.episodes);
    if (found.last === null) return;
    const open = found.episodes.filter((episode) => episode.status === "open");
    found.sensors.forEach((sensor, i) => drawSensor(sensor, i, found, open));
    while (by("sensors").children.length > found.sensors.length) by("sensors").lastElementChild.remove();
  }

  function card(i) {
    if (by("sensors").children[i]) return by("sensors").children[i];
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    follow(drawing);
    const found = element("section", { className: "sensor" },
      element("header", {}, element("h2"), element("p", { className: "value" })), drawing,
      element("footer", { className: "soft" }, element("span"), element("span")));
    by("sensors").append(found);
    return found;
  }

  function drawSensor(sensor, i, found, open) {
    const box = card(i);
    const latest = sensor.mean.findLast((value) => value !== null);
    const [low, high] = [sensor.low.at(-1), sensor.high.at(-1)];
    box.querySelector("h2").textContent = sensor.name;
    const expected = low === null || low === undefined ? "" : ` expected ${number.format(low)} to ${number.format(high)}`;
    box.querySelector(".value").replaceChildren(
      sensor.mean.at(-1) === null ? "no value" : latest === undefined ? "–" : number.format(latest), element("small", { textContent: expected }));
    const blamed = open.filter((episode) => episode.sensors.slice(0, 2).includes(sensor.name));
    box.dataset.state = blamed.some((e) => e.severity === "alarm") ? "alarm" : blamed.length ? "look" : "well";
    const [begin, end] = bounds();
    const long = end - begin > 20 * HOUR;
    const feet = box.querySelectorAll("footer span");
    feet[0].textContent = clock(begin, { day: long });
    feet[1].textContent = clock(end, { day: long });
    const drawing = box.querySelector("svg");
    drawing.setAttribute("aria-label", `${sensor.name}, ${feet[0].textContent} to ${feet[1].textContent}`);
    drawing.replaceChildren(...picture(sensor, found, begin, end));
  }

  function picture(sensor, found, begin, end) {
    const values = [...sensor.least, ...sensor.most].filter((value) => value !== null);
    let [low, high] = [Math.min(...values), Math.max(...values)]; // at most 1,500
    const margin = 0.08 * (high - low) || 0.01 * Math.max(Math.abs(high), 1);
    [low, high] = [low - margin, high + margin];
    const x = (place) => (WIDTH * (place - begin)) / (end - begin || 1);
    const y = (value) => Math.min(Math.max((HEIGHT * (high - value)) / (high - low), -20), HEIGHT + 20);
    const tenths = (value) => Math.round(10 * value) / 10;
    const xs = found.places.map((place) => tenths(x(place)));
    const at = (value, j) => `${xs[j]} ${tenths(y(value))}`;
    const shown = spans(sensor, found, begin, end, x);
    if (!values.length) return shown;
    // Episodes lie over the band, which would hide them, and under the trace.
    const parts = [svg("path", { class: "band", d: area(sensor.low, sensor.high, at) }), ...shown];
    parts.push(svg("path", { class: "extremes", d: area(sensor.least, sensor.most, at) }));
    parts.push(svg("path", { class: "trace", d: runs(sensor.mean).map((run) => `M${run.map((j) => at(sensor.mean[j], j)).join("L")}`).join("") }));
    return parts;
  }

  function spans(sensor, found, begin, end, x) {
    return found.episodes
      .filter((episode) => !episode.sensors.length || episode.kind === "sampling" || episode.sensors.slice(0, 2).includes(sensor.name))
      .map((episode) => [episode, ...(found.has_times ? [episode.begin, episode.end] : [episode.first_row, episode.last_row])])
      .filter(([, from, to]) => from !== null && to >= begin && from <= end)
      .map(([episode, from, to]) => svg("rect", {
        class: `span ${episode.severity}`, x: x(from).toFixed(1), y: 0, height: HEIGHT,
        width: Math.max(x(to) - x(from), 3).toFixed(1), "data-episode": episode.number,
      }, svg("title", {}, episode.sentence)));
  }

  // Stretches of points without a gap between them.
  function runs(...curves) {
    const found = [];
    let run = [];
    for (let j = 0; j <= curves[0].length; j++) {
      if (j < curves[0].length && curves.every((curve) => curve[j] !== null)) run.push(j);
      else if (run.length) {
        found.push(run);
        run = [];
      }
    }
    return found;
  }

  function area(low, high, at) {
    return runs(low, high).map((run) =>
      `M${[...run.map((j) => at(high[j], j)), ...run.toReversed().map((j) => at(low[j], j))].join("L")}Z`).join("");
  }

  function drawEpisodes(episodes) {
    const wanted = JSON.stringify(episodes.map((e) => [e.number, e.sentence, e.mark, e.status, e.severity]));
    if (by("episodes").dataset.shown === wanted) return; // a button under the pointer stays where it is
    by("episodes").dataset.shown = wanted;
    const lines = episodes.toReversed().map(line);
    by("episodes").replaceChildren(...(lines.length ? lines : [element("li", { textContent: "Nothing unusual so far.", className: "soft" })]));
  }

  function line(episode) {
    const buttons = [["seen", "Seen"], ["normal", "Normal"], ["fault", "Fault"]].map(([verdict, text]) => {
      const button = element("button", { type: "button", textContent: text, onclick: () => mark(episode.number, verdict) });
      button.setAttribute("aria-pressed", String(episode.mark === verdict));
      button.setAttribute("aria-label", `Mark episode ${episode.number} as ${verdict}`);
      button.id = `mark-${episode.number}-${verdict}`;
      return button;
    });
    const day = episode.shown_begin.slice(0, 10);
    const said = { open: "lasts", accepted: "accepted as normal", over: "" }[episode.status];
    const note = [`no. ${episode.number}`, day, said, episode.mark && `marked: ${episode.mark}`].filter(Boolean).join(", ");
    const found = element("li", { className: episode.severity }, element("span", { textContent: episode.sentence }),
      element("p", { className: "soft", textContent: note }), element("div", { className: "marks" }, ...buttons));
    found.dataset.open = String(episode.status === "open");
    found.onclick = (event) => {
      if (event.target.tagName === "BUTTON" || episode.begin === null) return;
      const length = Math.max(episode.end - episode.begin, 600);
      go(episode.begin - length, episode.end + length);
    };
    return found;
  }

  function begin() {
    const buttons = RANGES.map(([text, length]) => {
      const button = element("button", { type: "button", textContent: text, id: `range-${text.replace(" ", "")}` });
      button.dataset.length = length ?? "all";
      button.onclick = () => {
        Object.assign(view, { length, begin: null, end: null });
        moved();
      };
      return button;
    });
    const moves = [["earlier", "←", () => pan(-0.5)], ["later", "→", () => pan(0.5)], ["closer", "+", () => zoom(0.5, 0.5)], ["wider", "−", () => zoom(2, 0.5)]];
    by("ranges").replaceChildren(...buttons, ...moves.map(([name, text, onclick]) => {
      const button = element("button", { type: "button", textContent: text, id: `view-${name}`, onclick });
      button.setAttribute("aria-label", name);
      return button;
    }));
    showRanges();
  }

  return { begin, open, close: () => { clearTimeout(view.timer); view.name = null; } };
})();

(() => {
  const style = getComputedStyle(document.documentElement);
  const tone = (name) => style.getPropertyValue(name).trim();
  const axis = () => ({ gridcolor: tone("--grid"), linecolor: tone("--line"), zeroline: false, automargin: true, ticks: "" });
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const lit = (trace) => {
    const copy = structuredClone(trace);
    if (dark && copy.line && copy.line.color === "#2f2f37") copy.line.color = tone("--ink");
    if (dark && copy.marker && copy.marker.color === "#2f2f37") copy.marker.color = tone("--ink");
    if (dark && copy.colorscale === "Greys") copy.reversescale = true;
    return copy;
  };
  const draw = (place) => {
    const plot = plots[place.dataset.plot];
    const layout = {
      margin: { l: 60, r: 16, t: 34, b: 84 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: tone("--ink") },
      ...plot.layout,
    };
    layout.legend = { orientation: "h", x: 0, y: -50 / ((layout.height || 360) - 118), yanchor: "top", ...plot.layout.legend };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) layout[name] = { ...axis(), ...layout[name] };
    Plotly.newPlot(place, plot.data.map(lit), layout, { responsive: true, displayModeBar: false });
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) { seen.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "900px" });
  for (const place of document.querySelectorAll(".plot")) {
    place.style.minHeight = `${plots[place.dataset.plot].layout.height || 360}px`;
    window.Plotly ? seen.observe(place) : place.replaceChildren("This figure needs plotly: pip install 'everlearn[plot]'.");
  }
  window.addEventListener("beforeprint", () => document.querySelectorAll(".plot:empty").forEach(draw));
})();

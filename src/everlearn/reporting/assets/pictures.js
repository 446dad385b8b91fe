"use strict";
// Draws the pictures of everlearn.reporting.figures in the colours of the page.
const pictures = (() => {
  const drawn = new Map();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 820px)");
  const config = { displayModeBar: false, showTips: false };

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--grid"), linecolor: colour("--line"), tickcolor: colour("--line") };
    const result = { ...layout, font: { family: style.fontFamily, size: 12, color: colour("--soft") } };
    result.hoverlabel = { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } };
    for (const key of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      result[key] = { ...axis, ...layout[key] };
    }
    if (narrow.matches) result.margin = { ...layout.margin, l: 48 };
    return result;
  }

  // A picture fills its element, also when that changes its size.
  const sizes = new ResizeObserver((changed) => {
    for (const { target } of changed) {
      const size = `${target.clientWidth} ${target.clientHeight}`;
      if (target.dataset.size !== size && drawn.has(target)) draw(target, drawn.get(target));
    }
  });

  // The element names its picture for those who cannot see it; the drawing itself is hidden from readers.
  function draw(element, picture) {
    if (!drawn.has(element)) sizes.observe(element);
    drawn.set(element, picture);
    element.dataset.size = `${element.clientWidth} ${element.clientHeight}`;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", picture.layout.meta.alt);
    const layout = themed(structuredClone(picture.layout));
    Object.assign(layout, { width: element.clientWidth, height: element.clientHeight });
    return Plotly.react(element, structuredClone(picture.data), layout, config);
  }

  const again = () => drawn.forEach((picture, element) => draw(element, picture));
  dark.addEventListener("change", again);
  narrow.addEventListener("change", again);
  return { draw };
})();

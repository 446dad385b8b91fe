"""The page that describes the service: it needs no network, and its script draws what openapi.json has."""

import json
import re
import shutil
import subprocess

import pytest

# The few parts of a document that the script uses; elements are written down as text.
DOCUMENT = """
const element = (tag) => ({ tag, children: [], dataset: {}, append(...c) { this.children.push(...c); },
  replaceChildren(...c) { this.children = c; }, setAttribute() {} });
const known = {};
globalThis.document = { createElement: element, body: element("body"), baseURI: "http://localhost/x/docs",
  getElementById: (id) => (known[id] ??= Object.assign(element(id), { value: "" })) };
const asked = [];
globalThis.fetch = async (url, options) => { asked.push(String(url)); return {
  json: async () => JSON.parse(require("fs").readFileSync(0, "utf8")), text: async () => "{}", status: 200 }; };
const words = (e) => typeof e === "string" ? e
  : [e.textContent, e.value, ...e.children.map(words)].filter(Boolean).join(" ");
const all = (e) => typeof e === "string" ? [] : [e, ...e.children.flatMap(all)];
"""
REPORT = """
setTimeout(async () => {
  const found = all(known.operations).filter((e) => e.tag === "details");
  for (const each of found) each.ontoggle();
  const score = found.find((each) => /name}.score/.test(words(each)));
  await all(score).find((each) => each.textContent === "Send").onclick();
  console.log(JSON.stringify({ title: known.title.textContent, trouble: known.trouble?.textContent ?? "", asked,
    operations: found.map(words) }));
}, 50);
"""


def test_nothing_comes_from_elsewhere(client):
    page = client.get("/docs")
    assert page.status_code == 200
    for text in (page.text, client.get("/static/docs.js").text, client.get("/static/docs.css").text):
        assert re.findall(r"(?:https?:)?//[a-z]", text.replace("http://localhost", "")) == []
    assert "script-src 'self'" in page.headers["content-security-policy"]


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_every_operation_is_drawn(client, tmp_path):
    api = client.get("/openapi.json").json()
    script = tmp_path / "page.js"
    script.write_text(DOCUMENT + client.get("/static/docs.js").text + REPORT)
    done = subprocess.run(
        ["node", str(script)], input=json.dumps(api), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["trouble"] == ""
    assert found["title"].startswith("everlearn ")
    assert len(found["operations"]) == sum(len(methods) for methods in api["paths"].values())
    learn = next(text for text in found["operations"] if "POST /models/{name}/learn" in text)
    assert "targets" in learn
    assert "curl -X POST http://localhost/x/models/machine/learn" in learn
    assert "http://localhost/x/models/machine/score" in found["asked"]

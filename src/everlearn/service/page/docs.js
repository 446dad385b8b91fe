"use strict";
// The description of the service, from openapi.json, with a form for each operation. Nothing is loaded from elsewhere.
(() => {
  const by = (id) => document.getElementById(id);
  const make = (tag, fields = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), fields);
    element.append(...children);
    return element;
  };
  const plain = (text) => (text ?? "").replaceAll("`", "");

  function typeOf(schema, api) {
    if (!schema) return "";
    if (schema.$ref) return schema.$ref.split("/").at(-1);
    const choices = schema.anyOf ?? schema.oneOf;
    if (choices) return choices.map((each) => typeOf(each, api)).join(" or ");
    if (schema.const !== undefined) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" or ");
    if (schema.type === "array") return `list of ${typeOf(schema.items, api) || "anything"}`;
    return schema.format === "binary" ? "file" : schema.type ?? "anything";
  }

  const resolved = (schema, api) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema);

  function fieldsOf(schema, api) {
    const found = resolved(schema, api);
    const rows = Object.entries(found?.properties ?? {}).map(([name, field]) => {
      const needed = (found.required ?? []).includes(name) ? "" : field.default == null ? "optional" : `default ${JSON.stringify(field.default)}`;
      return make("tr", {}, make("td", {}, make("code", { textContent: name })), make("td", { textContent: typeOf(field, api) }), make("td", { textContent: [needed, plain(field.description)].filter(Boolean).join(". ") }));
    });
    return rows.length ? [make("table", {}, make("tbody", {}, ...rows))] : [];
  }

  function curl(method, url, body, kind) {
    const token = by("token").value ? ` \\\n  -H "Authorization: Bearer $TOKEN"` : "";
    const data = body === null ? "" : ` \\\n  -H 'Content-Type: ${kind}' \\\n  -d '${body.replaceAll("'", "'\\''")}'`;
    return `curl${method === "GET" ? "" : ` -X ${method}`} ${url}${token}${data}`;
  }

  function operation(path, method, told, api) {
    const inputs = (told.parameters ?? []).filter((each) => each.in !== "header").map((parameter) => {
      const input = make("input", { placeholder: typeOf(parameter.schema, api), value: parameter.name === "name" ? "machine" : parameter.schema?.default ?? "" });
      input.setAttribute("aria-label", parameter.name);
      return { parameter, input };
    });
    const [kind, content] = Object.entries(told.requestBody?.content ?? {})[0] ?? [null, null];
    const isFile = kind === "application/octet-stream";
    const schema = resolved(content?.schema, api);
    const examples = schema?.examples ?? [];
    const text = make("textarea", { value: examples.length ? JSON.stringify(examples[0], null, 1).replace(/\n\s+(?=[\d"\]nN-])/g, " ") : "{}", spellcheck: false });
    text.setAttribute("aria-label", "body");
    const answer = make("pre", { hidden: true });
    const command = make("pre");
    const url = () => {
      let place = path;
      const query = new URLSearchParams();
      for (const { parameter, input } of inputs) {
        if (parameter.in === "path") place = place.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
        else if (input.value !== "") query.set(parameter.name, input.value);
      }
      return new URL(place.slice(1) + (query.size ? `?${query}` : ""), document.baseURI);
    };
    const show = () => { command.textContent = isFile ? `curl ${url()} -H 'Content-Type: ${kind}' --data-binary @model.evl` : curl(method, url(), kind ? text.value : null, kind); };
    const send = make("button", { type: "button", textContent: "Send" });
    send.onclick = async () => {
      const headers = by("token").value ? { Authorization: `Bearer ${by("token").value}` } : {};
      if (kind) headers["Content-Type"] = kind;
      answer.hidden = false;
      answer.textContent = "…";
      try {
        const response = await fetch(url(), { method, headers, body: kind ? text.value : undefined });
        const said = await response.text();
        let shown = said;
        try { shown = JSON.stringify(JSON.parse(said), null, 1); } catch { /* text as it is */ }
        answer.textContent = `${response.status} ${response.statusText}\n${shown.slice(0, 20000)}`;
      } catch (error) {
        answer.textContent = String(error);
      }
    };
    const body = make("details", {}, make("summary", {}, make("span", { className: "method", textContent: method }), make("span", { className: "path", textContent: path }), " ", make("span", { className: "about", textContent: `  ${plain(told.description).split("\n")[0]}` })));
    body.ontoggle = show;
    for (const input of [...inputs.map((each) => each.input), text]) input.oninput = show;
    body.append(make("p", { textContent: plain(told.description) }));
    for (const { parameter, input } of inputs) body.append(make("div", { className: "field" }, make("code", { textContent: parameter.name, title: plain(parameter.description) }), input));
    if (kind && !isFile) {
      body.append(...fieldsOf(content.schema, api), text);
      for (const example of examples.slice(1)) {
        const other = make("button", { type: "button", textContent: "Another example" });
        other.onclick = () => { text.value = JSON.stringify(example); show(); };
        body.append(other, " ");
      }
    }
    // An event stream has no end, and a file is sent from the command line.
    if (!isFile && !path.endsWith("/events")) body.append(send);
    body.append(command, answer);
    return body;
  }

  async function begin() {
    const api = await (await fetch("openapi.json")).json();
    by("title").textContent = `${api.info.title} ${api.info.version}`;
    by("description").textContent = plain(api.info.description).trim();
    const groups = new Map();
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, told] of Object.entries(methods)) {
        const group = told.tags?.[0] ?? "other";
        if (!groups.has(group)) groups.set(group, make("section", {}, make("h2", { textContent: group })));
        groups.get(group).append(operation(path, method.toUpperCase(), told, api));
      }
    }
    by("operations").replaceChildren(...groups.values());
    document.body.dataset.ready = "true";
  }

  begin().catch((error) => {
    by("trouble").hidden = false;
    by("trouble").textContent = `The description cannot be read: ${error}`;
  });
})();

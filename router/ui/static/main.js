// The page: which view is shown, whether the feed is open, and the key where one is asked for.

import { html, render, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { key } from "./ask.js";
import { keepOpen, reconnect } from "./feed.js";
import { Field, useStore } from "./parts.js";
import { state } from "./store.js";
import { MeshView } from "./views/mesh.js";
import { PlacementView } from "./views/placement.js";
import { PromisesView } from "./views/promises.js";
import { RequestView } from "./views/request.js";
import { WhatIfView } from "./views/what_if.js";
import { ChatView } from "./views/chat.js";

const VIEWS = [
  { name: "mesh", title: "Mesh", view: MeshView },
  { name: "promises", title: "Promises", view: PromisesView },
  { name: "request", title: "Request", view: RequestView },
  { name: "placement", title: "Placement", view: PlacementView },
  { name: "what-if", title: "What if", view: WhatIfView },
  { name: "chat", title: "Chat", view: ChatView },
];

// A part of the address as somebody may have typed it: "100%" is no escape.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// The address says which view: #promises, or #request/ID.
function useAddress() {
  const read = () => location.hash.slice(1).split("/").map(decoded);
  const [address, set] = useState(read());
  useEffect(() => {
    const follow = () => set(read());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return address;
}

function Page() {
  useStore();
  const [name, ...further] = useAddress();
  const shown = VIEWS.find((view) => view.name === name) ?? VIEWS[0];
  const main = useRef(null);
  useEffect(() => {
    document.title = `${shown.title} · ${state.hello?.mesh ?? "MeshServe"}`;
  }, [shown, state.hello]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to the content</a>
    <header class="top">
      <h1><img src="icon.svg" alt="" /> ${state.hello?.mesh ?? "MeshServe"}</h1>
      <nav aria-label="Views"><ul>
        ${VIEWS.map(({ name, title }) => html`<li key=${name}><a href=${`#${name}`} aria-current=${name === shown.name ? "page" : null}>${title}</a></li>`)}
      </ul></nav>
      <${Link} />
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      ${state.link === "lost" && html`<p class="note bad" role="alert">${state.problem}</p>`}
      ${state.link === "locked" ? html`<${KeyForm} />` : html`<${shown.view} further=${further} key=${shown.name} />`}
    </main>`;
}

function Link() {
  const others = [...state.gateways.values()].filter((row) => row.admin_url && row.id !== state.hello?.gateway);
  return html`<p class="link" role="status">
    ${state.link === "live" ? html`<span class="good">● live</span> as <b>${state.hello?.gateway}</b> sees it` : html`<span class="bad">○ ${state.link}</span>`}
    ${others.length > 0 && html` · also ${others.map((row) => html`<a key=${row.id} href=${`${row.admin_url}/ui/${location.hash}`}>${row.id}</a> `)}`}
  </p>`;
}

function KeyForm() {
  const [text, set] = useState(key.get());
  const send = (event) => {
    event.preventDefault();
    key.set(text.trim());
    reconnect();
  };
  return html`<form class="panel" onSubmit=${send}>
    <h2>This gateway asks for an operator's key</h2>
    <p>${state.problem}</p>
    <p class="soft">Make one with <code>mesh keys add NAME --admin</code>. It stays in this tab.</p>
    <div class="row">
      <${Field} label="Key" id="key"><input id="key" type="password" autocomplete="off" value=${text} onInput=${(event) => set(event.target.value)} /><//>
      <button class="main">Show the mesh</button>
    </div>
  </form>`;
}

document.getElementById("page").replaceChildren();
render(html`<${Page} />`, document.getElementById("page"));
keepOpen();

// Asks before something is done, and says what came of it.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { post } from "./ask.js";

// What is asked for now, and what came of the last one. `ask({title, text, button, path, body, done})` opens the dialog.
export function useOrders() {
  const [order, ask] = useState(null);
  const [outcome, tell] = useState(null);
  const over = (said) => {
    ask(null);
    if (said) tell(said);
  };
  // In an element of its own: otherwise what comes after it is moved when the dialog goes, and loses the focus.
  return { ask, view: html`<div><${Said} outcome=${outcome} />${order && html`<${Confirm} order=${order} over=${over} />`}</div>` };
}

const Said = ({ outcome }) => html`<p role="status" class=${outcome ? `note ${outcome.isBad ? "bad" : ""}` : "hidden"}>${outcome?.text ?? ""}</p>`;

// A dialog that Escape and "Leave it" close. The browser gives the focus back to the button that opened it.
function Confirm({ order, over }) {
  const dialog = useRef(null);
  const said = useRef(null);
  const [isSent, setSent] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const close = (outcome) => {
    said.current = outcome;
    dialog.current.close();
  };
  const send = async () => {
    setSent(true);
    close(await post(order.path, order.body).then((answer) => ({ text: order.done(answer) }), (error) => ({ text: error.message, isBad: true })));
  };
  return html`<dialog ref=${dialog} aria-labelledby="order-title" aria-describedby="order-text" onClose=${() => over(said.current)}>
    <h3 id="order-title">${order.title}</h3>
    <p id="order-text">${order.text}</p>
    <div class="row"><button type="button" onClick=${() => close(null)}>Leave it</button>
      <button type="button" class="main" disabled=${isSent} onClick=${send}>${order.button}</button></div>
  </dialog>`;
}

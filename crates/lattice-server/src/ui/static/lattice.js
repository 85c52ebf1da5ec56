// The page's whole script. docs/decisions/0003-the-page-needs-no-library.md
// It follows the events, renews <main> in place, keeps ages ticking, and sends what buttons ask for.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const main = () => $("#main");
  const randomKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
  const make = (name, text, className) => Object.assign(document.createElement(name), { textContent: text ?? "", className: className ?? "" });

  // --- ages -------------------------------------------------------------------------------------------------------
  // The server's clock counts: the browser's may be wrong.
  let skew = 0;
  const now = () => Date.now() - skew;
  const setClock = (serverMs) => { if (serverMs > 0) skew = Date.now() - serverMs; };
  const span = (ms) => {
    const s = Math.floor(Math.max(0, ms) / 1000);
    if (s < 120) return `${s} s`;
    if (s < 7200) return `${Math.floor(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} days`;
  };
  const tick = () => {
    for (const time of document.querySelectorAll("time[data-tick]")) {
      const distance = now() - Date.parse(time.dateTime);
      const text = distance < 0 ? `in ${span(-distance)}` : span(distance) + (time.dataset.tick === "lasting" ? "" : " ago");
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // --- renewal in place ---------------------------------------------------------------------------------------------
  // Elements stay, so focus, scroll positions, open details and what is being typed stay too.
  // Siblings are told apart by id, buttons by what they do: a button never turns into another one under a finger.
  const keyOf = (node) => (node.nodeType === 1 && (node.id || node.dataset.id)) || null;
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
  const morphAttributes = (from, to) => {
    const ours = from.nodeName === "DETAILS" ? ["open"] : from.nodeName === "BUTTON" && from.dataset.busy ? ["disabled", "data-busy", "data-key"] : ["data-key"];
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !ours.includes(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value && !ours.includes(name)) from.setAttribute(name, value);
    if (from.nodeName === "PROGRESS") from.value = to.value;
  };
  const morph = (from, to) => {
    if (from.nodeType === 3) { if (from.data !== to.data) from.data = to.data; return; }
    if (from.nodeType !== 1) return;
    // What somebody chooses or types in a field is theirs until they send it.
    if (from.matches("form[data-live-form]") && from.contains(document.activeElement)) return;
    if ("keep" in from.dataset) return;
    morphAttributes(from, to);
    const keyed = new Map([...from.childNodes].filter(keyOf).map((child) => [keyOf(child), child]));
    const staying = new Set([...to.childNodes].map(keyOf).filter((key) => key && keyed.has(key)));
    let place = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const key = keyOf(wanted);
      // What is gone is removed before its successor is looked at, so that nothing that stays has to move.
      while (place && keyOf(place) && !staying.has(keyOf(place))) { const gone = place; place = place.nextSibling; gone.remove(); }
      let match = key ? keyed.get(key) : place && alike(place, wanted) ? place : null;
      if (match && match.nodeName !== wanted.nodeName) match = null;
      // Text and nameless elements between here and there are not worth moving what has the focus.
      if (match && match !== place) {
        for (let gone = place; gone && gone !== match && !keyOf(gone); gone = place) { place = gone.nextSibling; gone.remove(); }
      }
      if (!match) from.insertBefore(document.importNode(wanted, true), place);
      else {
        if (match === place) place = place.nextSibling; else from.insertBefore(match, place);
        morph(match, wanted);
      }
    }
    while (place) { const gone = place; place = place.nextSibling; gone.remove(); }
  };

  let renewing = null;
  let again = false;
  const toLogin = () => location.assign("/ui/login?next=" + encodeURIComponent(location.pathname + location.search));
  const renew = async (url = location.href) => {
    if (renewing) { again = true; return renewing; }
    renewing = (async () => {
      const answer = await fetch(url, { headers: { "X-Lattice-Fragment": "main" } });
      if (answer.status === 401) return toLogin();
      const text = await answer.text();
      const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      if (!fresh || url !== location.href) return;
      setClock(Number(fresh.dataset.at));
      morph(main(), fresh);
      tick();
    })();
    try { await renewing; } finally { renewing = null; }
    if (again) { again = false; await renew(); }
  };

  // --- live ---------------------------------------------------------------------------------------------------------
  // fetch, not EventSource: events are named, and EventSource tells only names that it was told of beforehand. It also
  // hides the comment that shows the stream is alive, and why it was refused.
  const SILENCE_MS = 25000; // the server says something every 15 s
  const SOONEST_MS = 400; // between two renewals: a burst of events is one change
  const LATEST_MS = 10000; // heartbeats make no event, but "heard" ages
  const live = $("#live");
  let lastEvent = null;
  let pending = null;
  let renewedAt = 0;
  const say = (state, text) => { if (live) { live.dataset.state = state; if (live.textContent !== text) live.textContent = text; } };
  const schedule = (behind) => {
    if (pending || document.hidden) return;
    pending = setTimeout(async () => {
      pending = null;
      renewedAt = Date.now();
      try {
        await renew();
        if (behind) say("live", `live, ${(Math.max(0, now() - behind()) / 1000).toFixed(1)} s behind`);
      } catch { say("lost", "reconnecting"); }
    }, Math.max(0, SOONEST_MS - (Date.now() - renewedAt)) + 60);
  };
  const follow = async () => {
    let seq = main().dataset.seq;
    for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
      if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
      const stop = new AbortController();
      let alarm;
      const heard = () => { clearTimeout(alarm); alarm = setTimeout(() => stop.abort(), SILENCE_MS); };
      // A hidden page gives its connection back: browsers have six for a server, tabs are many.
      const hide = () => { if (document.hidden) stop.abort(); };
      document.addEventListener("visibilitychange", hide);
      try {
        heard();
        const headers = { Accept: "text/event-stream", "Last-Event-ID": seq };
        const answer = await fetch(main().dataset.events, { headers, signal: stop.signal, cache: "no-store" });
        if (answer.status === 401) return toLogin();
        // The cursor is of another history, after a restore say: begin anew.
        if (answer.status === 400) { await renew(); seq = main().dataset.seq; }
        if (!answer.ok) throw new Error(`events answered ${answer.status}`);
        say("live", "live");
        pause = 500;
        schedule(null);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = ""; ; ) {
          const { value, done } = await reader.read();
          if (done) break;
          heard();
          rest += value;
          const lines = rest.split("\n");
          rest = lines.pop();
          for (const line of lines) {
            if (line.startsWith("id: ")) seq = line.slice(4).trim();
            else if (line.startsWith("data: ")) {
              lastEvent = Date.parse(JSON.parse(line.slice(6)).at);
              schedule(() => lastEvent);
            }
          }
        }
      } catch { /* said below, tried again below */ } finally {
        clearTimeout(alarm);
        document.removeEventListener("visibilitychange", hide);
        stop.abort();
      }
      if (document.hidden) continue;
      say("lost", `reconnecting, as of ${new Date(Number(main().dataset.at)).toISOString().slice(11, 19)}`);
      await new Promise((then) => setTimeout(then, pause));
    }
  };

  // --- actions ------------------------------------------------------------------------------------------------------
  const outcome = $("#outcome");
  let fading;
  const show = (kind, lines, command) => {
    clearTimeout(fading);
    outcome.replaceChildren();
    outcome.className = "shown " + kind;
    for (const [label, text] of lines) {
      const line = make("p");
      if (label) line.append(make("b", label + ": "));
      line.append(document.createTextNode(text));
      outcome.append(line);
    }
    for (const text of command ?? []) outcome.append(make("code", text));
    const close = make("button", "Close");
    close.type = "button";
    close.onclick = () => { outcome.className = ""; outcome.replaceChildren(); };
    outcome.append(close);
    if (kind === "done" && !command) fading = setTimeout(close.onclick, 12000);
  };
  const refusal = (problem) => show("refused", [
    ["error", problem.detail || problem.title],
    ...(problem.because ?? []).map((fact) => ["because", fact]),
    ...(problem.next_actions ?? []).map((step) => ["next", step.command ? `${step.command} — ${step.effect}` : step.effect]),
  ]);
  const told = (path, body) => {
    if (typeof body.ok === "boolean" && "details" in body) {
      const lines = [["", body.ok ? `it answers${body.version ? ", version " + body.version : ""}` : "it could not be used"], ...body.details.map((d) => ["", d])];
      return show(body.ok ? "done" : "refused", lines);
    }
    if (typeof body.ok === "boolean" && "took_ms" in body) {
      const line = body.ok ? `taken: it answered ${body.status} after ${body.took_ms} ms` : `not taken: ${body.error}`;
      return show(body.ok ? "done" : "refused", [["", line]]);
    }
    if (body.command) return show("done", [["", "Run this as root on the machine; it is shown this once."]], [body.command]);
    const what = path.split("/").pop().replaceAll("_", " ").replaceAll("-", " ");
    if (body.changed === false) return show("done", [["", `${what}: it was so already`]]);
    show("done", [["", `${what}: done`], ...(body.effects ?? []).map((effect) => ["", effect])]);
  };
  const send = async (button, path, body, method) => {
    // The key outlives a lost answer: a repeat changes nothing more.
    const sent = method + path + body;
    if (button.dataset.sent !== sent) { button.dataset.sent = sent; button.dataset.key = randomKey(); }
    const headers = { "Idempotency-Key": button.dataset.key };
    if (body) headers["Content-Type"] = "application/json";
    button.dataset.busy = "1";
    button.disabled = true;
    try {
      const answer = await fetch(path, { method, headers, body: body || undefined });
      delete button.dataset.sent;
      if (answer.status === 401) return toLogin();
      const said = await answer.json().catch(() => ({ detail: `the server answered ${answer.status}` }));
      if (answer.ok) told(path, said); else refusal(said);
    } catch (lost) {
      refusal({ detail: "the server could not be reached", because: [String(lost.message ?? lost)], next_actions: [{ effect: "press the button again: it is not done twice" }] });
    } finally {
      delete button.dataset.busy;
      button.disabled = false;
      if (document.activeElement === document.body) button.focus({ preventScroll: true });
      schedule(null);
    }
  };

  const dialog = $("#ask");
  const reasonField = () => $("input[name=reason]", dialog);
  let asked = null;
  const ask = (button) => {
    asked = button;
    const { effect, command, blanks = "", choices = "" } = button.dataset;
    const label = button.textContent.replaceAll("…", "").trim();
    $("#ask-title").textContent = `${label}?`;
    $("#ask-effect").textContent = effect;
    $("#ask-command").textContent = command;
    $("#ask-ok").textContent = label;
    $("#ask-ok").className = button.classList.contains("danger") ? "danger" : "primary";
    const fields = blanks.split(" ").filter(Boolean).map((blank) => {
      const field = make("label", `${blank.replaceAll("_", " ")} `);
      const input = Object.assign(document.createElement("input"), { name: "blank-" + blank, required: true, autocomplete: "off", spellcheck: false });
      const known = choices.split("\n").filter(Boolean);
      if (known.length) {
        const list = Object.assign(document.createElement("datalist"), { id: "ask-choices" });
        for (const choice of known) list.append(Object.assign(document.createElement("option"), { value: choice }));
        input.setAttribute("list", list.id);
        if (known.length === 1) input.value = known[0];
        field.append(list);
      }
      input.oninput = () => { $("#ask-command").textContent = filled(command); };
      field.append(input);
      return field;
    });
    $("#ask-blanks").replaceChildren(...fields);
    $("form", dialog).reset();
    reasonField().required = command.includes("<reason>");
    reasonField().oninput = () => { $("#ask-command").textContent = filled(command); };
    dialog.showModal();
    // Enter alone must never do what cannot be undone: what keeps everything comes first.
    ($("#ask-blanks input") ?? $("#ask-cancel")).focus();
  };
  const filled = (text) => {
    for (const input of dialog.querySelectorAll("#ask-blanks input")) {
      const blank = `<${input.name.slice(6)}>`;
      text = text.replaceAll(blank, input.value.trim() || blank);
    }
    const reason = reasonField().value.trim();
    return reason ? text.replaceAll("<reason>", `'${reason.replaceAll("'", `'\\''`)}'`) : text;
  };
  // `4h` in a field of milliseconds; what is no span goes as it is, and the server says what is wrong with it.
  const UNITS = { s: 1000, m: 60000, h: 3600000, d: 86400000 };
  const spanMs = (text) => { const [, number, unit] = /^(\d+)([smhd])$/.exec(text) ?? []; return unit ? number * UNITS[unit] : text; };
  $("#ask-cancel")?.addEventListener("click", () => dialog.close());
  $("form", dialog)?.addEventListener("submit", () => {
    const reason = reasonField().value.trim();
    const { method, path, body } = asked.dataset;
    let fields = body ? JSON.parse(body, (key, value) => (typeof value !== "string" ? value : key.endsWith("_ms") ? spanMs(filled(value)) : filled(value))) : null;
    if (reason && fields) fields = { ...fields, reason };
    const button = asked;
    dialog.close();
    button.focus({ preventScroll: true });
    send(button, path, fields ? JSON.stringify(fields) : "", method);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-path]");
    if (!button || button.disabled) return;
    if ("asks" in button.dataset) ask(button);
    else send(button, button.dataset.path, button.dataset.body, button.dataset.method);
  });

  // --- filters, search, keyboard --------------------------------------------------------------------------------------
  const narrow = (form) => {
    const fields = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(fields).toString();
    history.replaceState(null, "", form.getAttribute("action") + (query ? "?" + query : ""));
    const focused = document.activeElement;
    if (form.contains(focused)) { form.dataset.keep = ""; }
    again = Boolean(renewing);
    renew().finally(() => delete form.dataset.keep);
  };
  let typing;
  document.addEventListener("change", (event) => { const form = event.target.closest("form[data-live-form]"); if (form && event.target.matches("select")) narrow(form); });
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live-form]");
    if (!form || !event.target.matches("input")) return;
    clearTimeout(typing);
    typing = setTimeout(() => narrow(form), 250);
  });
  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest("input, select, textarea, dialog[open]");
    if (event.key === "/" && !writes && !event.ctrlKey && !event.metaKey) { event.preventDefault(); $("#find")?.focus(); }
    if (event.key === "Escape" && event.target.id === "find") event.target.blur();
    if (event.key === "Escape" && !writes && outcome?.className) $("button", outcome)?.click();
  });
  $("#sign-out")?.addEventListener("click", async () => { await fetch("/ui/session", { method: "DELETE" }); location.assign("/ui/login"); });

  // --- signing in -----------------------------------------------------------------------------------------------------
  const signIn = async () => {
    const next = main().dataset.next || "/ui/";
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token) {
      // The token leaves the address, and with it the history, before anything else.
      history.replaceState(null, "", location.pathname + location.search);
      const body = new URLSearchParams({ token, next });
      const answer = await fetch("/ui/session", { method: "POST", body });
      if (answer.ok) return location.replace(next);
      $("#token").focus();
      return show("refused", [["error", "the token in the address was refused"], ["next", "paste another one"]]);
    }
    // A link from elsewhere carries no cookie, but this request from here does.
    const known = await fetch("/ui/session");
    if (known.status === 204) location.replace(next);
  };

  if (main()?.matches("[data-login]")) signIn();
  else if (main()) {
    setClock(Number(main().dataset.at));
    tick();
    setInterval(tick, 1000);
    if (main().dataset.events) {
      follow();
      setInterval(() => { if (!document.hidden && Date.now() - renewedAt > LATEST_MS) schedule(null); }, 1000);
    }
  }
})();

// The page of a report: figures as SVG and the same numbers as tables. No library, no network.
// Keys are text everywhere and reach the page through textContent alone.
"use strict";
const pyroute = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const root = document.documentElement;

  // --- elements ---------------------------------------------------------------------------------
  const make = (space, name, attributes, children) => {
    const node = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
      else node.setAttribute(key, value === true ? "" : String(value));
    }
    for (const child of children.flat(3)) {
      if (child !== null && child !== undefined && child !== false) node.append(child);
    }
    return node;
  };
  const h = (name, attributes, ...children) => make(null, name, attributes, children);
  const s = (name, attributes, ...children) => make(SVG, name, attributes, children);
  // Words: text, or a list of texts and keys.
  const words = (value) => (Array.isArray(value) ? value : [value]).map((part) =>
    typeof part === "string" ? part : h("span", { class: "key" }, part.text));
  const plain = (value) => (Array.isArray(value) ? value : [value])
    .map((part) => (typeof part === "string" ? part : part.text)).join("");

  // --- numbers ----------------------------------------------------------------------------------
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const number = (x) => (x === null || x === undefined ? "–" : Math.abs(x) >= 1000 ? whole.format(x) : three.format(x));
  const short = (x) => (x === null || x === undefined ? "–" : Math.abs(x) >= 10000 ? compact.format(x) : number(x));
  const percent = (x) => (x === null || x === undefined ? "–"
    : `${(100 * x).toFixed(Math.abs(x) < 0.0995 ? 2 : 1)}%`);
  const bytes = (x) => {
    if (x === null || x === undefined) return "–";
    let unit = 0;
    for (const units = 4; x >= 1024 && unit < units; unit += 1) x /= 1024;
    return `${unit ? x.toFixed(1) : whole.format(x)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
  };
  const seconds = (x) => (x === null || x === undefined ? "–"
    : x < 1 ? `${three.format(1000 * x)} ms` : `${three.format(x)} s`);
  const times = (x) => (x === null || x === undefined ? "–" : `${x.toFixed(2)}x`);
  const units = { share: percent, bytes, seconds, count: number, times, "": number };
  const sum = (list) => list.reduce((a, b) => a + (b || 0), 0);
  const nice = (top) => {
    if (!(top > 0)) return [0, 1];
    const raw = top / 4, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= raw * 0.999);
    const ticks = [];
    for (let i = 0; i * step < top + step * 0.999; i += 1) ticks.push(i * step);
    return ticks;
  };

  // --- tips and the keyboard --------------------------------------------------------------------
  const tip = h("div", { class: "tip", role: "presentation", hidden: true });
  const showTip = (node, x, y) => {
    tip.textContent = node.getAttribute("data-tip");
    tip.hidden = false;
    const box = node.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = (x === undefined ? box.left + box.width / 2 : x) - own.width / 2;
    const above = (y === undefined ? box.top : y) - own.height - 12;
    tip.style.left = `${Math.max(8, Math.min(innerWidth - own.width - 8, left))}px`;
    tip.style.top = `${above > 8 ? above : (y === undefined ? box.bottom : y) + 16}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  const listen = () => {
    const tipped = (event) => event.target.closest && event.target.closest("[data-tip]");
    document.addEventListener("pointermove", (event) => {
      const node = tipped(event);
      if (node) showTip(node, event.clientX, event.clientY); else hideTip();
    });
    document.addEventListener("focusin", (event) => { const node = tipped(event); if (node) showTip(node); else hideTip(); });
    document.addEventListener("focusout", hideTip);
    // While a mark has the focus its tip follows it; that of the pointer goes.
    addEventListener("scroll", () => {
      const node = document.activeElement && document.activeElement.closest("[data-tip]");
      if (node) showTip(node); else hideTip();
    }, { passive: true });
    // Marks of a figure are one stop of the Tab key; arrows go from one to the next.
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        document.getElementById("search").focus();
        return;
      }
      if (event.key === "Escape") hideTip();
      const mark = event.target.closest && event.target.closest(".mark");
      if (!mark) return;
      const all = [...mark.ownerSVGElement.querySelectorAll(".mark")];
      const columns = Number(mark.getAttribute("data-columns")) || 1;
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
      let next = step && all[all.indexOf(mark) + step];
      if (event.key === "Home") next = all[0];
      if (event.key === "End") next = all[all.length - 1];
      if (!next) return;
      event.preventDefault();
      mark.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  };
  const mark = (name, attributes, id, text) => s(name, {
    ...attributes, class: `mark ${attributes.class || ""}`, "data-id": id, "data-tip": text,
    role: "img", "aria-label": text.replace(/\n/g, ", "), tabindex: "-1",
  });
  const drawing = (width, height, label, ...children) => {
    const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label }, ...children);
    const first = node.querySelector(".mark");
    if (first) first.setAttribute("tabindex", "0");
    return node;
  };
  const label = (x, y, text, attributes) => s("text", { x, y, ...attributes }, text);
  const fit = (text, width, size) => {
    const most = Math.floor(width / (size || 6.7));
    return text.length <= most ? text : most < 3 ? "" : `${text.slice(0, most - 1)}…`;
  };
  const line = (x1, y1, x2, y2, attributes) => s("line", { x1, y1, x2, y2, ...attributes });
  const legend = (...entries) => h("ul", { class: "legend", "aria-hidden": "true" },
    entries.filter(Boolean).map(([text, color, kind]) => h("li", {},
      h("i", { class: kind || "", style: kind && kind.includes("lined") ? { color, "border-color": color } : kind === "hatch" ? {} : { background: color } }), text)));

  // --- tables -----------------------------------------------------------------------------------
  // Columns: [title, of(row) -> value to sort by, shown(value, row) -> text, kind: "text" | "name" | ""].
  const table = (state, caption, columns, rows, identity) => {
    const host = h("div", {});
    const draw = () => {
      const sorted = rows.slice();
      if (state.sort) {
        const [at, up] = state.sort, of = columns[at][1];
        const digits = /^-?\d+$/;
        sorted.sort((a, b) => {
          let x = of(a), y = of(b);
          if (x === null || x === undefined) return 1;
          if (y === null || y === undefined) return -1;
          // Text of digits is compared as integers of any size.
          if (typeof x === "string" && digits.test(x) && digits.test(y)) { x = BigInt(x); y = BigInt(y); }
          const order = typeof x === "string" ? x.localeCompare(y) : x < y ? -1 : x > y ? 1 : 0;
          return up ? order : -order;
        });
      }
      const most = state.all ? sorted.length : 100;
      const head = h("tr", {}, columns.map(([title, , , kind], i) => h("th", {
        scope: "col", class: kind ? "text" : "",
        "aria-sort": state.sort && state.sort[0] === i ? (state.sort[1] ? "ascending" : "descending") : "none",
      }, h("button", {
        type: "button",
        onclick: () => {
          const same = state.sort && state.sort[0] === i;
          state.sort = [i, same ? !state.sort[1] : Boolean(kind)];
          draw();
          host.querySelectorAll("th button")[i].focus();
        },
      }, title))));
      const body = sorted.slice(0, most).map((row) => h("tr", { "data-key": identity ? identity(row) : null },
        columns.map(([, of, shown, kind]) => h("td", { class: kind ? `text ${kind}` : "" }, shown ? shown(of(row), row) : String(of(row))))));
      const more = sorted.length > most && h("button", {
        type: "button", class: "icon more", onclick: () => { state.all = true; draw(); },
      }, `Show all ${whole.format(sorted.length)}`);
      const unprinted = more && h("p", { class: "unprinted" }, `The first ${most} of ${whole.format(sorted.length)} rows: "Show all" on the screen prints the others too.`);
      host.replaceChildren(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
        h("table", {}, h("caption", { class: "sr" }, caption), h("thead", {}, head), h("tbody", {}, body))), ...(more ? [more, unprinted] : []));
    };
    state.full = () => { state.all = true; draw(); };
    draw();
    return host;
  };

  // --- sections ---------------------------------------------------------------------------------
  const sections = [];
  const section = (id, title, about, when, draw, rows, choices) => sections.push({ id, title, about, when, draw, rows, choices, state: { tables: [] } });
  const brief = { loads: "Loads", keys: "Hot keys", heat: "Heat", time: "Over time", moves: "Moves", ratio: "Ratio", forecast: "Forecast", locality: "Locality", certificate: "How good", events: "Log" };
  const choose = (part, name, options) => h("div", { class: "choice", role: "group", "aria-label": name },
    options.map(([value, text]) => h("button", {
      type: "button", "aria-pressed": String((part.state[name] || options[0][0]) === value),
      onclick: (event) => {
        part.state[name] = value;
        for (const other of event.target.parentNode.children) other.setAttribute("aria-pressed", String(other === event.target));
        redraw(part);
      },
    }, text)));

  let current = null;
  const width = (node) => Math.max(300, Math.min(1120, node.clientWidth || 1070));
  const redraw = (part) => {
    const held = document.activeElement && part.figure.contains(document.activeElement) && document.activeElement.getAttribute("data-id");
    part.figure.replaceChildren(...[part.draw(current, width(part.figure), part.state)].flat(2).filter(Boolean));
    if (held) {
      const again = [...part.figure.querySelectorAll(".mark")].find((node) => node.getAttribute("data-id") === held);
      if (again) { again.setAttribute("tabindex", "0"); again.focus({ preventScroll: true }); }
    }
  };
  const mount = (part) => {
    part.figure = h("div", { class: "figure" });
    part.host = h("div", {});
    part.node = h("section", { class: "card", id: part.id, "aria-labelledby": `${part.id}-title` },
      h("header", {}, h("div", { class: "head" }, h("h2", { id: `${part.id}-title` }, part.title), h("p", { class: "about" }, part.about)),
        (part.choices || []).map(([name, options]) => choose(part, name, options))),
      part.figure,
      part.rows && h("details", {}, h("summary", {}, "The numbers as a table"), part.host));
  };
  const retable = (part) => {
    if (!part.rows) return;
    const made = part.rows(current), tables = typeof made[0] === "string" ? [made] : made;
    part.host.replaceChildren(...tables.flatMap(([caption, columns, rows, identity], i) => {
      const state = part.state.tables[i] || (part.state.tables[i] = {});
      return [...(tables.length > 1 ? [h("h3", {}, caption)] : []), table(state, caption, columns, rows, identity)];
    }));
  };

  // loads ----------------------------------------------------------------------------------------
  const meanOf = (tasks, name) => sum(tasks.filter((t) => !t.closed).map((t) => t[name])) / Math.max(1, tasks.filter((t) => !t.closed).length);
  section("loads", "Load per task", "Each bar is a task. A stage is as slow as its tallest bar.",
    (d) => d.tasks.length,
    (d, w, state) => {
      const planned = d.tasks_after, tasks = d.tasks.slice();
      const greatest = (t) => Math.max(t.before || 0, t.after || 0);
      if ((state.order || "task") === "load") tasks.sort((a, b) => (b.before || 0) - (a.before || 0));
      const height = 270, left = 58, right = 70, top = 14, bottom = 26;
      const ticks = nice(Math.max(...tasks.map(greatest), 1e-9)), most = ticks[ticks.length - 1];
      const y = (v) => top + (height - top - bottom) * (1 - v / most);
      const slot = (w - left - right) / tasks.length, wide = Math.max(0.6, Math.min(54, slot * 0.78));
      const mean = meanOf(tasks, planned ? "after" : "before");
      const limit = d.certificate ? mean * (1 + d.certificate.allowed) : null;
      const hot = mean * 1.1;
      const parts = ticks.map((t) => [line(left, y(t), w - right, y(t), { class: "grid" }), label(left - 8, y(t) + 4, short(t), { class: "faint small", "text-anchor": "end" })]);
      tasks.forEach((t, i) => {
        const x = left + slot * i + (slot - wide) / 2;
        const text = `task ${t.task}\n${planned ? `before ${number(t.before)}, after ${number(t.after)}` : number(t.before)}`
          + `\n${times((planned ? t.after : t.before) / (mean || 1))} the mean${t.closed ? "\nclosed" : ""}`
          + (t.keys_in || t.keys_out ? `\n${number(t.keys_out)} keys leave, ${number(t.keys_in)} come` : "");
        const over = (t.before || 0) > (limit || hot) * (1 + 1e-9) * (planned ? 1 : 1);
        parts.push(s("rect", { x, y: y(t.before || 0), width: wide, height: Math.max(0, y(0) - y(t.before || 0)), rx: Math.min(3, wide / 4), fill: planned ? (over ? "var(--hot-soft)" : "var(--before)") : (t.before > hot ? "var(--hot)" : "var(--accent)"), stroke: planned && over ? "var(--hot)" : null, "stroke-width": planned && over && wide > 4 ? 1 : null }));
        if (planned) {
          const narrow = wide * 0.56;
          parts.push(s("rect", { x: x + (wide - narrow) / 2, y: y(t.after || 0), width: narrow, height: Math.max(0, y(0) - y(t.after || 0)), rx: Math.min(2, narrow / 4), fill: "var(--accent)" }));
        }
        parts.push(mark("rect", { x: left + slot * i, y: top, width: slot, height: height - top - bottom, fill: "transparent" }, `task-${t.task}`, text));
        if (slot > 24 || i % Math.ceil(24 / slot) === 0) parts.push(label(left + slot * (i + 0.5), height - 8, t.task, { class: "faint small", "text-anchor": "middle" }));
      });
      parts.push(line(left, y(mean), w - right, y(mean), { stroke: "var(--ink)", "stroke-dasharray": "5 4", "stroke-width": 1.2 }), label(w - right + 7, y(mean) + 4, "mean", { class: "soft small" }));
      if (limit && y(mean) - y(limit) > 13) parts.push(line(left, y(limit), w - right, y(limit), { stroke: "var(--hot)", "stroke-dasharray": "2 3" }), label(w - right + 7, y(limit) + 4, "allowed", { class: "soft small" }));
      return [d.tasks_of && h("h3", {}, `In the last interval, ${d.tasks_of}`), drawing(w, height, `Load of ${tasks.length} tasks${planned ? " before and after the plan" : ""}`, parts),
        planned ? legend(["before", "var(--before)"], ["before, over what is allowed", "var(--hot-soft)"], ["after", "var(--accent)"]) : legend(["load", "var(--accent)"], ["more than 1.1x the mean", "var(--hot)"])];
    },
    (d) => [`Load per task${d.tasks_of ? `, ${d.tasks_of}` : ""}`, [
      ["task", (t) => t.task, null, "text"],
      [d.tasks_after ? "load before" : "load", (t) => t.before, number],
      ...(d.tasks_after ? [["load after", (t) => t.after, number], ["after / mean", (t) => t.after / (meanOf(d.tasks, "after") || 1), times],
        ["keys leave", (t) => t.keys_out, number], ["keys come", (t) => t.keys_in, number], ["capacity", (t) => t.capacity, number]]
        : [["load / mean", (t) => t.before / (meanOf(d.tasks, "before") || 1), times]]),
    ], d.tasks],
    [["order", [["task", "by task"], ["load", "by load"]]]]);

  // hot keys -------------------------------------------------------------------------------------
  const squarify = (items, x, y, w, h2, out) => {
    let rest = items.slice(), total = sum(rest.map((i) => i.size));
    while (rest.length && w > 0 && h2 > 0 && total > 0) {
      const side = Math.min(w, h2), scale = (w * h2) / total;
      const worst = (row) => { const area = sum(row.map((i) => i.size)) * scale, edge = area / side; return Math.max(...row.map((i) => { const other = (i.size * scale) / edge; return Math.max(edge / other, other / edge); })); };
      let row = [rest[0]];
      while (row.length < rest.length && worst([...row, rest[row.length]]) <= worst(row)) row.push(rest[row.length]);
      const used = sum(row.map((i) => i.size)), edge = (used * scale) / side;
      let at = 0;
      for (const item of row) {
        const length = (item.size * scale) / edge;
        out.push(w >= h2 ? { item, x, y: y + at, w: edge, h: length } : { item, x: x + at, y, w: length, h: edge });
        at += length;
      }
      if (w >= h2) { x += edge; w -= edge; } else { y += edge; h2 -= edge; }
      rest = rest.slice(row.length);
      total -= used;
    }
    return out;
  };
  const bounds = (k) => (k.error ? `${number(k.count - k.error)} to ${number(k.count)}` : number(k.count));
  const place = (k) => (k.target !== null ? `task ${k.task} to task ${k.target}` : k.task !== null ? `task ${k.task}` : k.note || "–");
  const keyTip = (d, k) => `${k.key.text}\n${bounds(k)} ${d.unit}, ${percent(k.share)} of all${k.error ? `\nat most ${number(k.error)} too many` : ""}${k.task !== null ? `\n${place(k)}` : ""}${k.note && k.task === null ? `\n${k.note}` : ""}`;
  const fair = (d) => (d.tasks.length > 1 ? 1 / d.tasks.length : Infinity);
  section("keys", "Hot keys", "Area is the share of the whole load; the hatched part may be error of the sketch, the rest is certain.",
    (d) => d.hot_keys.length,
    (d, w) => {
      const shown = d.hot_keys.slice(0, 48), listed = sum(shown.map((k) => k.share));
      const two = w > 780, tw = two ? Math.round((w - 26) * 0.6) : w, bw = two ? w - 26 - tw : w, height = 340;
      const items = shown.filter((k) => k.share > 0).map((k) => ({ key: k, size: k.share }));
      const rest = Math.max(0, 1 - listed);
      if (rest > 1e-6) items.push({ key: null, size: rest });
      items.sort((a, b) => b.size - a.size);
      const limit = fair(d), ground = [];
      for (const { item, x, y, w: bw2, h: bh } of squarify(items, 0, 0, tw, height, [])) {
        const k = item.key, gw = Math.max(0, bw2 - 2), gh = Math.max(0, bh - 2);
        if (!k) {
          ground.push(mark("rect", { x, y, width: gw, height: gh, rx: 4, fill: "var(--field)", stroke: "var(--line)" }, "rest", `all other keys\n${percent(rest)} of all`));
          if (gw > 70 && gh > 22) ground.push(label(x + 10, y + 20, "all other keys", { class: "soft", "pointer-events": "none" }), gh > 40 && label(x + 10, y + 37, percent(rest), { class: "faint small", "pointer-events": "none" }));
          continue;
        }
        const heavy = k.share > limit, strength = Math.round(45 + 55 * Math.min(1, k.share / shown[0].share));
        const fill = `color-mix(in srgb, var(--${heavy ? "hot" : "accent"}) ${strength}%, var(--card))`;
        ground.push(mark("rect", { x, y, width: gw, height: gh, rx: 4, fill, "data-key": k.key.text }, `key-${k.key.kind}-${k.key.text}`, keyTip(d, k)));
        const unsure = gh * Math.min(1, k.count ? k.error / k.count : 0);
        if (unsure > 1) ground.push(s("rect", { x, y: y + gh - unsure, width: gw, height: unsure, rx: 4, fill: "url(#hatch)", "pointer-events": "none" }));
        const ink = strength > 62 ? { fill: "var(--card)" } : {};
        if (gw > 44 && gh > 20) ground.push(label(x + 9, y + 18, fit(k.key.text, gw - 14, 8.1), { class: "strong", style: ink, "pointer-events": "none" }), gh > 38 && label(x + 9, y + 34, percent(k.share), { class: "small", style: ink, "pointer-events": "none" }));
      }
      const hatch = s("defs", {}, s("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("rect", { width: 2.4, height: 6, fill: "var(--card)", opacity: 0.55 })));
      const bars = shown.slice(0, 12), step = height / Math.max(12, bars.length), most = bars[0].share, lw = Math.min(166, bw * 0.42), scale = (v) => lw + (bw - lw - 60) * (v / most);
      const rows = bars.map((k, i) => {
        const y = step * i, mid = y + step / 2, sure = k.count ? k.share * (1 - k.error / k.count) : 0, color = k.share > limit ? "var(--hot)" : "var(--accent)";
        return [label(lw - 8, mid + 4, fit(k.key.text, lw - 10, 7.4), { "text-anchor": "end" }),
          s("rect", { x: lw, y: y + step * 0.22, width: Math.max(1, scale(sure) - lw), height: step * 0.56, rx: 3, fill: color }),
          k.error > 0 && [line(scale(sure), mid, scale(k.share), mid, { stroke: "var(--ink)", "stroke-width": 1.5 }), line(scale(k.share), mid - 5, scale(k.share), mid + 5, { stroke: "var(--ink)", "stroke-width": 1.5 }), line(scale(sure), mid - 5, scale(sure), mid + 5, { stroke: "var(--ink)", "stroke-width": 1.5 })],
          label(scale(k.share) + 8, mid + 4, percent(k.share), { class: "soft small" }),
          mark("rect", { x: 0, y, width: bw, height: step, fill: "transparent", "data-key": k.key.text }, `bar-${k.key.kind}-${k.key.text}`, keyTip(d, k))];
      });
      return [h("div", { class: "pair", style: { "grid-template-columns": two ? `${tw}px ${bw}px` : "minmax(0,1fr)" } },
        drawing(tw, height, "Hot keys by their share of the load", hatch, ground), drawing(bw, height, "The heaviest keys with their error bars", rows)),
      legend(limit < 1 && ["more than one task's fair share: no placement alone can balance it", "var(--hot)"], ["fits into a task", "var(--accent)"], bars.some((k) => k.error) && ["may be error", "", "hatch"])];
    },
    (d) => ["Hot keys", [
      ["key", (k) => k.key.text, null, "name"], ["type", (k) => k.key.kind, null, "text"],
      [`${d.unit}, at most`, (k) => k.count, number], ["error, at most", (k) => k.error, number], ["share", (k) => k.share, percent],
      ...(d.hot_keys.some((k) => k.state_size !== null) ? [["state", (k) => k.state_size, bytes]] : []),
      ...(d.hot_keys.some((k) => k.task !== null || k.note) ? [["where", place, null, "text"], ["why", (k) => k.note || "–", null, "text"]] : []),
    ], d.hot_keys, (k) => k.key.text]);

  // time: heat -----------------------------------------------------------------------------------
  const dark = () => root.dataset.theme === "dark" || (root.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  const mix = (a, b, t) => `rgb(${a.map((x, i) => Math.round(x + (b[i] - x) * t)).join(" ")})`;
  const heatColor = (ratio, night) => {
    const [low, middle, high] = night ? [[52, 130, 178], [34, 41, 50], [255, 112, 67]] : [[66, 140, 184], [243, 244, 245], [207, 62, 12]];
    return ratio < 1 ? mix(middle, low, Math.min(1, 1 - ratio)) : mix(middle, high, Math.min(1, (ratio - 1) / 1.2));
  };
  section("heat", "Tasks over time", "Load of each task by the mean of its interval. A red row is a straggler.",
    (d) => d.heat && d.heat.labels.length > 1,
    (d, w) => {
      const { labels, tasks, loads } = d.heat, left = 58, bottom = 24;
      const columns = Math.min(labels.length, 120), per = Math.ceil(labels.length / columns), n = Math.ceil(labels.length / per);
      const rowsPer = Math.ceil(tasks.length / 64), rows = Math.ceil(tasks.length / rowsPer);
      const cw = (w - left - 4) / n, ch = Math.max(6, Math.min(26, 330 / rows)), height = rows * ch + bottom, night = dark();
      const means = labels.map((_, j) => { const seen = loads.map((row) => row[j]).filter((v) => v !== null); return sum(seen) / Math.max(1, seen.length); });
      const cells = [];
      for (let i = 0; i < rows; i += 1) {
        const from = i * rowsPer, to = Math.min(tasks.length, from + rowsPer), name = to - from > 1 ? `tasks ${tasks[from]} to ${tasks[to - 1]}` : `task ${tasks[from]}`;
        if (i % Math.ceil(13 / ch) === 0) cells.push(label(left - 8, i * ch + ch / 2 + 4, tasks[from], { class: "faint small", "text-anchor": "end" }));
        for (let j = 0; j < n; j += 1) {
          let worst = -1, value = null;
          for (let a = from; a < to; a += 1) for (let b = j * per; b < Math.min(labels.length, (j + 1) * per); b += 1) {
            const v = loads[a][b];
            if (v !== null && v / (means[b] || 1) > worst) { worst = v / (means[b] || 1); value = v; }
          }
          const text = value === null ? `${name}, ${labels[j * per]}\nnot there` : `${name}, ${labels[j * per]}\n${number(value)}, ${times(worst)} the mean`;
          cells.push(mark("rect", { x: left + j * cw, y: i * ch, width: Math.max(0.5, cw - (cw > 5 ? 1 : 0)), height: ch - 1, fill: value === null ? "var(--card)" : heatColor(worst, night), "data-columns": n }, `cell-${i}-${j}`, text));
        }
      }
      for (let j = 0; j < n; j += Math.max(1, Math.ceil(96 / cw))) cells.push(label(left + (j + 0.5) * cw, height - 7, fit(labels[j * per], 92, 6.2), { class: "faint small", "text-anchor": j ? "middle" : "start", ...(j ? {} : { x: left }) }));
      return [d.heat.name !== "measured" && h("h3", {}, `Loads ${d.heat.name}`), drawing(w, height, `Heat of ${tasks.length} tasks over ${labels.length} intervals`, cells),
        legend(["idle", heatColor(0, night)], ["mean", heatColor(1, night)], ["1.6x", heatColor(1.6, night)], ["2.2x and more", heatColor(2.2, night)])];
    },
    (d) => {
      const { labels, tasks, loads, binned } = d.heat;
      const cells = labels.map((name, j) => {
        const seen = loads.map((row, i) => ({ name, value: row[j], task: tasks[i] })).filter((r) => r.value !== null);
        const mean = sum(seen.map((r) => r.value)) / Math.max(1, seen.length);
        return seen.map((r) => ({ ...r, mean, ratio: mean ? r.value / mean : null })).sort((a, b) => b.value - a.value);
      });
      const what = `${d.heat.name === "measured" ? "" : `, ${d.heat.name}`}${binned > 1 ? ` (${binned} intervals in a row)` : ""}`;
      const busiest = cells.map((column, j) => column[0] || { name: labels[j], task: "–", value: null, mean: null, ratio: null });
      return [[`Busiest task of each interval${what}`, [
        ["interval", (r) => r.name, null, "text"], ["busiest task", (r) => r.task, null, "text"], ["its load", (r) => r.value, number],
        ["mean load", (r) => r.mean, number], ["busiest / mean", (r) => r.ratio, times]], busiest],
      [`Load of every task in every interval${what}`, [
        ["interval", (r) => r.name, null, "text"], ["task", (r) => r.task, null, "text"], ["load", (r) => r.value, number],
        ["load / mean", (r) => r.ratio, times]], cells.flat()]];
    });

  // time: lines ----------------------------------------------------------------------------------
  const chart = (series, w, palette, id) => {
    const height = 168, left = 68, right = 14, top = 10, bottom = 24, n = series.labels.length;
    const unit = series.lines[0].unit, show = units[unit] || number;
    const same = series.lines.filter((l) => l.unit === unit);
    const values = same.flatMap((l) => l.values.filter((v) => v !== null));
    const ticks = nice(Math.max(...values, 1e-9)), most = ticks[ticks.length - 1];
    const x = (i) => left + (w - left - right) * (n > 1 ? i / (n - 1) : 0.5), y = (v) => top + (height - top - bottom) * (1 - Math.max(0, v) / most);
    const parts = ticks.map((t) => [line(left, y(t), w - right, y(t), { class: "grid" }), label(left - 8, y(t) + 4, show(t), { class: "faint small", "text-anchor": "end" })]);
    same.forEach((l, k) => {
      if (unit === "bytes" || unit === "count") {
        const wide = Math.max(1, Math.min(22, ((w - left - right) / n) * 0.7));
        l.values.forEach((v, i) => { if (v) parts.push(s("rect", { x: x(i) - wide / 2, y: y(v), width: wide, height: Math.max(1, y(0) - y(v)), rx: 1.5, fill: palette[k] })); });
        return;
      }
      let path = "", open = false;
      l.values.forEach((v, i) => { if (v === null) { open = false; } else { path += `${open ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; open = true; } });
      parts.push(s("path", { d: path, fill: "none", stroke: palette[k], "stroke-width": k ? 1.6 : 2.2, "stroke-dasharray": k ? "5 4" : null, "stroke-linejoin": "round" }));
    });
    const step = Math.max(1, Math.ceil(n / 240)), slot = ((w - left - right) / Math.max(1, n - 1)) * step;
    for (let i = 0; i < n; i += step) {
      const text = [series.labels[i], ...series.lines.map((l) => `${l.name}: ${(units[l.unit] || number)(l.values[i])}`)].join("\n");
      parts.push(mark("rect", { x: Math.max(left - 6, x(i) - slot / 2), y: top, width: Math.max(3, slot), height: height - top - bottom, fill: "transparent", class: "slice" }, `${id}-${i}`, text));
    }
    const every = Math.max(1, Math.ceil(n / Math.max(2, Math.floor((w - left) / 120))));
    for (let i = 0; i < n; i += every) parts.push(label(x(i), height - 6, fit(series.labels[i], 110, 6.2), { class: "faint small", "text-anchor": i ? (x(i) > w - 70 ? "end" : "middle") : "start" }));
    return [h("h3", {}, series.title), drawing(w, height, `${series.title} over time`, parts), legend(...same.map((l, k) => [l.name, palette[k], unit === "bytes" || unit === "count" ? "" : `lined${k ? " dashed" : ""}`]))];
  };
  const lineRows = (list) => {
    const labels = list[0].labels;
    const lines = list.flatMap((one) => one.lines.map((l) => ({ ...l, title: one.title })));
    return [["interval", (i) => labels[i], null, "text"], ...lines.map((l) => [lines.filter((o) => o.name === l.name).length > 1 ? `${l.title}: ${l.name}` : l.name, (i) => l.values[i], units[l.unit] || number])];
  };
  section("time", "Imbalance and what moved", "How far the busiest task was above the mean, and what was paid to keep it low.",
    (d) => d.series.length,
    (d, w) => d.series.map((one, i) => chart(one, w, ["var(--accent)", "var(--c1)", "var(--c2)"], `line-${i}`)),
    (d) => ["Over time", lineRows(d.series), d.series[0].labels.map((_, i) => i)]);

  // moves ----------------------------------------------------------------------------------------
  section("moves", "What moves where", "Keys that leave a task for another, with their state.",
    (d) => d.flows.length,
    (d, w, state) => {
      const by = state.size || (sum(d.flows.map((f) => f.state_size)) ? "state_size" : "keys");
      const show = by === "state_size" ? bytes : number, most = 22;
      const rank = (side) => { const all = new Map(); for (const f of d.flows) all.set(f[side], (all.get(f[side]) || 0) + f[by]); return [...all].sort((a, b) => b[1] - a[1]); };
      const fold = (side) => { const order = rank(side), kept = new Set(order.slice(0, most).map(([t]) => t)); return (f) => (kept.has(f[side]) ? f[side] : `${order.length - most} others`); };
      const from = fold("source"), to = fold("target"), merged = new Map();
      for (const f of d.flows) {
        const id = JSON.stringify([from(f), to(f)]), old = merged.get(id) || { source: from(f), target: to(f), keys: 0, cost: 0, state_size: 0 };
        merged.set(id, { ...old, keys: old.keys + f.keys, cost: old.cost + f.cost, state_size: old.state_size + f.state_size });
      }
      const flows = [...merged.values()].filter((f) => f[by] > 0).sort((a, b) => b[by] - a[by]), total = sum(flows.map((f) => f[by])) || 1;
      const sides = ["source", "target"].map((side) => { const all = new Map(); for (const f of flows) all.set(f[side], (all.get(f[side]) || 0) + f[by]); return [...all].sort((a, b) => b[1] - a[1]); });
      const count = Math.max(sides[0].length, sides[1].length), gap = count > 14 ? 5 : 9, height = Math.max(150, Math.min(460, count * 34)), lw = 150;
      const place2 = (side) => { const room = height - gap * (side.length - 1), out = new Map(); let y = 0; for (const [name, size] of side) { const tall = Math.max(2, (size / total) * room); out.set(name, { y, tall, used: 0, size }); y += tall + gap; } return out; };
      const [a, b] = [place2(sides[0]), place2(sides[1])];
      const colors = new Map([...a.keys()].map((name, i) => [name, `var(--c${i % 8})`]));
      const x0 = lw + 10, x1 = w - lw - 10, parts = [];
      for (const f of flows) {
        const p = a.get(f.source), q = b.get(f.target), pt = (f[by] / p.size) * p.tall, qt = (f[by] / q.size) * q.tall, y0 = p.y + p.used, y1 = q.y + q.used, m = (x0 + x1) / 2;
        p.used += pt; q.used += qt;
        parts.push(mark("path", { d: `M${x0} ${y0}C${m} ${y0} ${m} ${y1} ${x1} ${y1}L${x1} ${y1 + qt}C${m} ${y1 + qt} ${m} ${y0 + pt} ${x0} ${y0 + pt}Z`, fill: colors.get(f.source), opacity: 0.5 }, `flow-${f.source}-${f.target}`, `task ${f.source} to task ${f.target}\n${number(f.keys)} keys, ${bytes(f.state_size)}, ${number(f.cost)} ${d.unit}`));
      }
      for (const [side, x, anchor, tx] of [[a, x0 - 8, "end", x0 - 14], [b, x1, "start", x1 + 14]]) {
        for (const [name, n] of side) {
          parts.push(s("rect", { x, y: n.y, width: 8, height: n.tall, rx: 2, fill: side === a ? colors.get(name) : "var(--soft)" }));
          if (n.tall + gap > 11) parts.push(label(tx, n.y + n.tall / 2 + 4, `task ${name}`, { "text-anchor": anchor, class: "small strong" }), label(anchor === "end" ? tx - 16 - 6.6 * `task ${name}`.length : tx + 16 + 6.6 * `task ${name}`.length, n.y + n.tall / 2 + 4, show(n.size), { "text-anchor": anchor, class: "soft small" }));
        }
      }
      return [drawing(w, height + 4, "Flows of keys between tasks: sources left, targets right", parts)];
    },
    (d) => [["Keys that move", [
      ["key", (m) => m.key.text, null, "name"], ["from task", (m) => m.source, null, "text"], ["to task", (m) => m.target, null, "text"],
      [d.unit, (m) => m.cost, number], ["state", (m) => m.state_size, bytes], ["why", (m) => m.why, null, "text"]], d.moves, (m) => m.key.text],
    ["Flows between tasks", [
      ["from task", (f) => f.source, null, "text"], ["to task", (f) => f.target, null, "text"], ["keys", (f) => f.keys, number],
      [d.unit, (f) => f.cost, number], ["state", (f) => f.state_size, bytes]], d.flows]],
    [["size", [["state_size", "bytes"], ["keys", "keys"], ["cost", "load"]]]]);

  // ratio, forecasts, locality, certificate, log ---------------------------------------------------
  section("ratio", "Split ratio", "The circle that divides records between workers that may all take them.",
    (d) => d.ratio.length,
    (d) => {
      const total = sum(d.ratio.map((r) => r.share)) || 1, parts = [];
      let at = -Math.PI / 2;
      d.ratio.forEach((r, i) => {
        const turn = (r.share / total) * 2 * Math.PI, end = at + Math.min(turn, 2 * Math.PI - 1e-4), big = turn > Math.PI ? 1 : 0;
        const point = (angle, radius) => `${(120 + radius * Math.cos(angle)).toFixed(2)} ${(120 + radius * Math.sin(angle)).toFixed(2)}`;
        if (r.share > 0) parts.push(mark("path", { d: `M${point(at, 112)}A112 112 0 ${big} 1 ${point(end, 112)}L${point(end, 68)}A68 68 0 ${big} 0 ${point(at, 68)}Z`, fill: `var(--c${i % 8})`, stroke: "var(--card)", "stroke-width": 2 }, `ratio-${r.name}`, `${r.name}\n${percent(r.share / total)}${r.note ? `\n${r.note}` : ""}`));
        at += turn;
      });
      parts.push(label(120, 118, `${d.ratio.filter((r) => r.share > 0).length} of ${d.ratio.length}`, { "text-anchor": "middle", class: "strong", style: { "font-size": "20px" } }), label(120, 138, "in service", { "text-anchor": "middle", class: "soft" }));
      const names = h("ul", { class: "legend", style: { "flex-direction": "column" } }, d.ratio.slice(0, 24).map((r, i) => h("li", {}, h("i", { style: { background: r.share > 0 ? `var(--c${i % 8})` : "var(--before)" } }), `${r.name}: ${percent(r.share / total)}${r.note ? ` (${r.note})` : ""}`)));
      return [h("div", { class: "donut" }, drawing(240, 240, "Split ratio", parts), names)];
    },
    (d) => ["Split ratio", [["worker", (r) => r.name, null, "text"], ["share", (r) => r.share, percent], ["note", (r) => r.note || "–", null, "text"]], d.ratio]);
  section("forecast", "Forecast against measured", "What was said one step ahead, and what came. A forecast acts only while it beats the last value.",
    (d) => d.forecasts.length,
    (d, w) => d.forecasts.slice(0, 8).map((one, i) => chart(one, w, ["var(--accent)", "var(--c1)", "var(--c2)"], `forecast-${i}`)),
    (d) => ["Forecast against measured", [["what", (r) => r.what, null, "text"], ["interval", (r) => r.label, null, "text"], ["line", (r) => r.name, null, "text"], ["value", (r) => r.value, number]],
      d.forecasts.flatMap((one) => one.lines.flatMap((l) => l.values.map((value, i) => ({ what: one.title, label: one.labels[i], name: l.name, value }))))]);
  section("locality", "Locality", "Share of the records that stay on their server: by hashing, in the statistics of the plan, and in what came after.",
    (d) => d.locality.length,
    (d, w) => {
      const lw = Math.min(230, w * 0.3), right = 20, row = 46, height = d.locality.length * row + 24, x = (v) => lw + (w - lw - right) * v, parts = [];
      for (const t of [0, 0.25, 0.5, 0.75, 1]) parts.push(line(x(t), 0, x(t), height - 20, { class: "grid" }), label(x(t), height - 4, `${100 * t}%`, { class: "faint small", "text-anchor": "middle" }));
      d.locality.forEach((l, i) => {
        const y = i * row + row / 2, ends = [l.before, l.in_sample, l.out_of_sample].filter((v) => v !== null);
        parts.push(label(lw - 14, y + 4, fit(l.name, lw - 16, 7), { "text-anchor": "end" }), line(x(Math.min(...ends)), y, x(Math.max(...ends)), y, { stroke: "var(--line)", "stroke-width": 6, "stroke-linecap": "round" }),
          mark("circle", { cx: x(l.before), cy: y, r: 8, fill: "var(--before)" }, `before-${i}`, `${l.name}\nbefore: ${percent(l.before)}`),
          mark("circle", { cx: x(l.in_sample), cy: y, r: 8, fill: "var(--accent)" }, `in-${i}`, `${l.name}\nin sample: ${percent(l.in_sample)}`),
          l.out_of_sample !== null && mark("circle", { cx: x(l.out_of_sample), cy: y, r: 8, fill: "var(--card)", stroke: "var(--hot)", "stroke-width": 3 }, `out-${i}`, `${l.name}\nout of sample: ${percent(l.out_of_sample)}`));
      });
      return [drawing(w, height, "Locality before, in sample and out of sample", parts), legend(["before", "var(--before)"], ["in sample", "var(--accent)"], d.locality.some((l) => l.out_of_sample !== null) && ["out of sample", "var(--hot)"])];
    },
    (d) => ["Locality", [["what", (l) => l.name, null, "text"], ["before", (l) => l.before, percent], ["in sample", (l) => l.in_sample, percent], ["out of sample", (l) => l.out_of_sample, percent], ["coverage", (l) => l.coverage, percent], ["note", (l) => l.note || "–", null, "text"]], d.locality]);
  section("certificate", "How good is it?", "The load of the busiest task by the mean, and the least that any plan for these keys could reach.",
    (d) => d.certificate,
    (d, w) => {
      const c = d.certificate, left = 20, right = 20, height = 92;
      const far = Math.max(c.imbalance_before, c.imbalance_after, c.allowed, c.imbalance_bound, 0.01) * 1.06, x = (v) => left + (w - left - right) * (v / far), parts = [];
      parts.push(s("rect", { x: left, y: 44, width: x(Math.min(far, c.allowed)) - left, height: 10, rx: 5, fill: "var(--good-soft)" }), line(left, 49, w - right, 49, { class: "axis" }));
      for (const t of nice(far).filter((v) => v <= far)) parts.push(label(x(t), 86, `${(1 + t).toFixed(2)}x`, { class: "faint small", "text-anchor": "middle" }), line(x(t), 66, x(t), 72, { class: "axis" }));
      const spots = [["lower bound", c.imbalance_bound, "var(--ink)"], ["after", c.imbalance_after, "var(--accent)"], ["before", c.imbalance_before, "var(--hot)"]];
      let last = -1e9, level = 0;
      for (const [name, value, color] of spots.sort((a, b) => a[1] - b[1])) {
        const text = `${name} ${(1 + value).toFixed(3)}x`, wide = text.length * 6.6;
        const at = Math.max(left + wide / 2, Math.min(w - right - wide / 2, x(value)));
        level = at - wide / 2 < last ? level + 1 : 0;
        last = at + wide / 2 + 8;
        parts.push(line(x(value), level ? 20 : 34, x(value), 49, { stroke: color, "stroke-width": 1.5 }), mark("circle", { cx: x(value), cy: 49, r: 7, fill: color }, name, text), label(at, level ? 14 : 30, text, { "text-anchor": "middle", class: "small strong", style: { fill: color } }));
      }
      const list = h("ul", { class: "words" }, c.sentences.map((one, i) => h("li", { class: i === 0 ? (c.feasible ? "good" : "bad") : "" }, words(one))));
      return [drawing(w, height, "Busiest task by the mean: lower bound, after, before", parts), list];
    },
    (d) => ["Certificate", [["what", (r) => r[0], null, "text"], ["busiest / mean", (r) => r[1], (v) => `${v.toFixed(4)}x`]], [["before", 1 + d.certificate.imbalance_before], ["after", 1 + d.certificate.imbalance_after], ["lower bound", 1 + d.certificate.imbalance_bound], ["allowed", 1 + d.certificate.allowed]]]);
  section("events", "What happened", "Plans, what the gate said of them and why; the last one first.",
    (d) => d.events.length,
    (d) => [h("ol", { class: "log", tabindex: "0", role: "log", "aria-label": "What happened" }, d.events.slice(0, 300).map((e) => h("li", {}, h("time", {}, e.at), h("span", { class: `pill ${e.kind}` }, e.kind), h("span", {}, words(e.text)))))]);

  // --- search -----------------------------------------------------------------------------------
  const search = () => {
    const input = h("input", { id: "search", type: "search", placeholder: "Find a key  ( / )", "aria-label": "Find a key", autocomplete: "off", spellcheck: "false", "aria-controls": "found" });
    const found = h("div", { class: "found", id: "found", hidden: true });
    const known = () => {
      const all = new Map();
      for (const k of current.hot_keys) all.set(`${k.key.kind} ${k.key.text}`, { name: k.key, hot: k });
      for (const m of current.moves) { const id = `${m.key.kind} ${m.key.text}`; all.set(id, { ...(all.get(id) || { name: m.key }), move: m }); }
      return [...all.values()];
    };
    const pick = (entry) => {
      found.hidden = true;
      for (const node of document.querySelectorAll(".lit, .dim")) node.classList.remove("lit", "dim");
      for (const part of sections) if (part.node && part.node.isConnected && part.state.tables.length && (part.id === "keys" || part.id === "moves")) { part.state.tables[0].full(); }
      const hits = [...document.querySelectorAll("[data-key]")].filter((node) => node.getAttribute("data-key") === entry.name.text);
      for (const node of hits) node.classList.add("lit");
      const target = hits.find((node) => node.tagName === "TR") || hits[0];
      if (!target) return;
      const inside = target.closest("details");
      if (inside) inside.open = true;
      target.scrollIntoView({ block: "center" });
    };
    const draw = () => {
      const text = input.value.trim().toLowerCase();
      if (!text) { found.hidden = true; return; }
      const hits = known().filter((e) => e.name.text.toLowerCase().includes(text));
      hits.sort((a, b) => (b.name.text.toLowerCase() === text) - (a.name.text.toLowerCase() === text) || (b.hot ? b.hot.count : 0) - (a.hot ? a.hot.count : 0));
      found.replaceChildren(...hits.slice(0, 8).map((e) => h("button", { type: "button", onclick: () => pick(e) }, h("b", {}, e.name.text),
        h("span", {}, [e.hot && `${bounds(e.hot)} ${current.unit}, ${percent(e.hot.share)} of all`, e.hot && place(e.hot) !== "–" && place(e.hot), e.move && !e.hot && `task ${e.move.source} to task ${e.move.target}`, e.move && e.move.why].filter(Boolean).join("; ")))),
      h("p", { role: "status" }, hits.length ? `${whole.format(hits.length)} of ${whole.format(known().length)} keys` : `No key of this page contains it. The page names ${whole.format(known().length)} keys: the heavy ones and those that move.`));
      found.hidden = false;
    };
    input.addEventListener("input", draw);
    input.addEventListener("focus", draw);
    input.addEventListener("keydown", (event) => {
      const buttons = found.querySelectorAll("button");
      if (event.key === "Enter" && buttons.length) buttons[0].click();
      if (event.key === "ArrowDown" && buttons.length) { event.preventDefault(); buttons[0].focus(); }
      if (event.key === "Escape") { found.hidden = true; input.value = ""; for (const node of document.querySelectorAll(".lit")) node.classList.remove("lit"); }
    });
    found.addEventListener("keydown", (event) => {
      const all = [...found.querySelectorAll("button")], at = all.indexOf(document.activeElement);
      if (event.key === "ArrowDown" && all[at + 1]) { event.preventDefault(); all[at + 1].focus(); }
      if (event.key === "ArrowUp") { event.preventDefault(); (all[at - 1] || input).focus(); }
      if (event.key === "Escape") { found.hidden = true; input.focus(); }
    });
    document.addEventListener("pointerdown", (event) => { if (!event.target.closest(".search")) found.hidden = true; });
    return h("div", { class: "search", role: "search" }, input, found);
  };

  // --- the page ---------------------------------------------------------------------------------
  const hero = h("div", { class: "hero" });
  const nav = h("nav", { "aria-label": "Parts of this page" });
  const main = h("main", { id: "main", class: "wrap", tabindex: "-1" });
  const drawHero = (d) => hero.replaceChildren(...[
    h("h1", {}, d.title), h("p", { class: "sub" }, [d.subtitle, d.made, d.keys_hashed ? "keys are hashed" : ""].filter(Boolean).join("  ·  ")),
    d.sources.length ? h("ul", { class: "sources", "aria-label": "What is read" }, d.sources.map((f) => h("li", { class: f.tone }, h("b", {}, f.name), h("span", {}, [f.value, f.detail].filter(Boolean).join(": "))))) : null,
    plain(d.headline) && h("p", { class: "headline" }, words(d.headline)),
    d.facts.length ? h("ul", { class: "facts", "aria-label": "Figures" }, d.facts.map((f) => h("li", { class: f.tone }, h("div", { class: "name" }, f.name), h("div", { class: "value" }, f.value), h("div", { class: "detail" }, f.detail)))) : null,
    d.warnings.length ? h("div", { class: "notes", role: "note" }, h("ul", {}, d.warnings.map((one) => h("li", {}, words(one))))) : null,
  ].filter(Boolean));
  const seen = new Map();
  // Draws what changed; what the reader opened, sorted or has in focus stays.
  const update = (document_) => {
    current = document_;
    const head = JSON.stringify([current.title, current.subtitle, current.made, current.headline, current.facts, current.warnings, current.sources]);
    if (seen.get("hero") !== head) { drawHero(current); seen.set("hero", head); }
    const shown = sections.filter((part) => { try { return part.when(current); } catch { return false; } });
    const order = shown.map((part) => part.id).join();
    if (seen.get("order") !== order) {
      for (const part of shown) if (!part.node) mount(part);
      // Only what comes and goes is touched: a node that is moved loses the focus.
      for (const part of sections) if (part.node && !shown.includes(part)) part.node.remove();
      if (!hero.isConnected) main.append(hero);
      let at = hero;
      for (const part of shown) {
        if (at.nextSibling !== part.node) at.after(part.node);
        at = part.node;
      }
      nav.replaceChildren(...shown.map((part) => h("a", { href: `#${part.id}` }, brief[part.id])));
      seen.set("order", order);
    }
    const slice = { loads: (d) => [d.tasks, d.tasks_of, d.certificate, d.unit], keys: (d) => [d.hot_keys, d.tasks.length, d.unit], heat: (d) => d.heat, time: (d) => d.series, moves: (d) => [d.flows, d.moves], ratio: (d) => d.ratio, forecast: (d) => d.forecasts, locality: (d) => d.locality, certificate: (d) => d.certificate, events: (d) => d.events };
    for (const part of shown) {
      const now = JSON.stringify(slice[part.id](current));
      if (seen.get(part.id) === now) continue;
      seen.set(part.id, now);
      redraw(part);
      retable(part);
    }
  };
  const redrawAll = () => { for (const part of sections) if (part.node && part.node.isConnected) redraw(part); };
  const theme = () => {
    const names = ["auto", "light", "dark"];
    const button = h("button", { type: "button", class: "icon", "aria-label": "Light, dark or as the system" }, "Theme: auto");
    button.addEventListener("click", () => {
      const next = names[(names.indexOf(root.dataset.theme || "auto") + 1) % 3];
      if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
      button.textContent = `Theme: ${next}`;
      redrawAll();
    });
    return button;
  };
  const start = () => {
    const data = JSON.parse(document.getElementById("pyroute-data").textContent);
    document.body.append(
      h("a", { class: "skip", href: "#main" }, "To the figures"),
      h("div", { class: "bar" }, h("div", { class: "wrap" }, h("span", { class: "brand" }, "py", h("i", {}, "route")), nav, search(), theme())),
      main, h("footer", { class: "wrap" }, data.live ? "Read-only. This page loads nothing but what its own server sends." : "This file is the whole report: it loads nothing and sends nothing."), tip);
    listen();
    update(data);
    let last = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; redrawAll(); } });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
    addEventListener("beforeprint", () => { for (const node of document.querySelectorAll("details")) node.open = true; });
    root.dataset.ready = "true";
    if (pyroute.live) pyroute.live(data);
  };
  return { start, update, words, h };
})();

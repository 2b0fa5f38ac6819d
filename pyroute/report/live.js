// What makes the page live: documents come as server-sent events and are drawn as they come.
pyroute.live = () => {
  const badge = pyroute.h("span", { class: "pill", role: "status" }, "connecting");
  document.querySelector(".bar .brand").after(badge);
  const say = (text, kind) => { badge.textContent = text; badge.className = `pill ${kind}`; };
  let source = null, last = 0, retry = 0;
  const open = () => {
    source = new EventSource("/events");
    source.onopen = () => { retry = 0; last = Date.now(); say("live", "ok"); };
    source.onmessage = (event) => {
      last = Date.now();
      say("live", "ok");
      try { pyroute.update(JSON.parse(event.data)); } catch (error) { say("cannot draw", "warning"); console.error(error); }
      document.documentElement.dataset.version = event.lastEventId;
    };
    source.onerror = () => {
      say("not connected", "warning");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      retry = Math.min(10000, 500 + retry * 2);
      setTimeout(open, retry);
    };
  };
  open();
};

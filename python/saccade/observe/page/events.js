// The list of events; each leads to its head and step.

const GRAVE = new Set(["nan", "inf", "collapse", "dead"]);

function buildEvents() {
  showPart(byId("events"), record.events.length ? "" : "No event was recorded: nothing passed the thresholds, and every weight was a number. Thresholds are arguments of `saccade.observe`.");
  byId("events").tBodies[0].replaceChildren(...record.events.map((event) => {
    const name = `layer ${event.layer}` + (event.head === null ? "" : `, head ${event.head}`);
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      const step = record.steps.indexOf(event.step);
      choose({ layer: event.layer, head: event.head ?? state.head, step: step < 0 ? state.step : step });
      cells[state.layer][state.head].focus();
    });
    const kind = element("td", { class: GRAVE.has(event.kind) ? "kind grave" : "kind" }, event.kind);
    return element("tr", {}, element("td", {}, String(event.step)), element("td", {}, button), kind, element("td", {}, event.message));
  }));
}

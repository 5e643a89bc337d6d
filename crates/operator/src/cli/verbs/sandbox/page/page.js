// Shows the state of the sandbox. Everything enters the page as text: names and banners may hold anything.
"use strict";

const byId = (id) => document.getElementById(id);
let shown = "";

function shownValue(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function fill(id, rows, classes = []) {
  const lines = rows.map((cells, index) => {
    const row = document.createElement("tr");
    if (classes[index]) row.className = classes[index];
    for (const value of cells) {
      const cell = document.createElement("td");
      cell.textContent = shownValue(value);
      row.append(cell);
    }
    return row;
  });
  byId(id).replaceChildren(...lines);
}

function changeText(change) {
  const where = change.organization ? ` in ${change.organization}` : "";
  return `${change.action} ${change.resource} ${change.target}${where}`;
}

function fieldsText(change) {
  const field = ({name, before, after}) => `${name}: ${shownValue(before)} → ${shownValue(after)}`;
  return change.fields.map(field).join("; ");
}

function whoText(change) {
  return `${change.who} (${change.program || "unnamed program"})`;
}

function choices(groups) {
  const select = byId("quota-group");
  const chosen = select.value;
  const options = groups.map((group) => {
    const option = document.createElement("option");
    option.value = group.id;
    option.textContent = `${group.organization}/${group.name}`;
    return option;
  });
  select.replaceChildren(...options);
  const preferred = groups.find((group) => group.id === chosen) || groups.find((group) => group.name !== "Everyone");
  if (preferred) select.value = preferred.id;
}

function show(state) {
  const {appearance, changes, groups} = state;
  fill("changes", changes.map((change) => [
    new Date(change.time).toLocaleTimeString(), whoText(change), changeText(change), fieldsText(change),
  ]), changes.map((change) => (change.who.startsWith("a person") ? "person" : "")));
  fill("organizations", state.organizations.map((it) => [it.name, it.display_name, it.members]));
  fill("groups", groups.map((it) => [it.organization, it.name, it.quota]));
  fill("sync", state.sync.map((it) => [it.name, it.field, it.mapping.join("\n")]));
  const banners = appearance.announcement_banners.map((it) => ["banner", `${it.message || ""}${it.enabled ? "" : " (off)"}`]);
  fill("appearance", [["application name", appearance.application_name], ["logo", appearance.logo_url], ...banners]);
  fill("keys", state.keys.map((it) => [it.organization, it.name, it.tags, it.daemons]));
  fill("licenses", state.licenses.map((it) => [
    it.id, it.feature_set, it.expires ? new Date(it.expires * 1000).toLocaleDateString() : "",
  ]));
  choices(groups);
}

async function refresh() {
  try {
    const answer = await fetch("/sandbox/state");
    const text = await answer.text();
    if (text !== shown) {
      show(JSON.parse(text));
      shown = text;
    }
    byId("status").textContent = "Running.";
  } catch {
    byId("status").textContent = "Stopped: start it again.";
  }
}

async function change(wanted) {
  const answer = await fetch("/sandbox/change", {
    method: "POST",
    headers: {"content-type": "application/json"},
    body: JSON.stringify(wanted),
  });
  const {message} = await answer.json();
  byId("answer").textContent = answer.ok ? "" : message;
  await refresh();
}

byId("quota-form").addEventListener("submit", (event) => {
  event.preventDefault();
  change({what: "quota", group: byId("quota-group").value, quota: Number(byId("quota-value").value)});
});
byId("banner-form").addEventListener("submit", (event) => {
  event.preventDefault();
  change({what: "banner", message: byId("banner-value").value});
});

refresh();
setInterval(refresh, 1000);

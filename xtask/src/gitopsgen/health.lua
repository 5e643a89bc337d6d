-- Health of a coder.com object, from its conditions. The status counts only for the generation that it is about.
local health = {status = "Progressing", message = "not reconciled yet"}
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "being deleted"
end
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
local generation = obj.metadata.generation
if generation ~= nil and (status.observedGeneration == nil or status.observedGeneration < generation) then
  health.message = "generation " .. generation .. " is not reconciled yet"
  return health
end
local ready = nil
local stalled = nil
for _, condition in ipairs(status.conditions) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.type == "Stalled" and condition.status == "True" then
    stalled = condition
  end
end
if ready == nil then
  return health
end
health.message = ready.reason .. ": " .. (ready.message or "")
if obj.metadata.deletionTimestamp ~= nil then
  health.status = "Progressing"
elseif ready.reason == "Suspended" then
  health.status = "Suspended"
elseif stalled ~= nil then
  health.status = "Degraded"
  health.message = stalled.reason .. ": " .. (stalled.message or "")
elseif ready.status == "True" then
  health.status = "Healthy"
elseif ready.reason == "Observed" then
  health.status = "Degraded"
end
return health

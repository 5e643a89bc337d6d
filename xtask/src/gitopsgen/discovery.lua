-- The actions that make sense for the object as it is now.
local plan = obj.status ~= nil and obj.status.plan or nil
local hash = plan ~= nil and plan.hash or nil
local annotations = obj.metadata.annotations or {}
local suspended = obj.spec.suspend == true
local actions = {}
actions["reconcile"] = {["disabled"] = suspended}
actions["approve-plan"] = {["disabled"] = hash == nil or annotations["coder.com/approved-plan"] == hash}
actions["suspend"] = {["disabled"] = suspended}
actions["resume"] = {["disabled"] = not suspended}

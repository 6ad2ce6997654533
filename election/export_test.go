package election

var Succeeds = succeeds

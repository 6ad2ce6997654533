package tiertest

var enginePromises = []promise{}

"use strict";

var WORDS = ["amber", "birch", "cobalt", "dune", "ember"];

function padded(number) {
  var text = String(number);
  while (text.length < 4) text = "0" + text;
  return text;
}

exports.describe = function (prefix, number, multiplier) {
  return {
    name: prefix + "-" + padded(number),
    word: WORDS[number % WORDS.length],
    score: Math.round(number * multiplier * 100) / 100,
  };
};

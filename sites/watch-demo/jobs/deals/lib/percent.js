// "-25 %" -> 25
module.exports = function percent(text) {
  const found = /(\d+)/.exec(text);
  return found ? Number(found[1]) : 0;
};

// The contents in the bar: closed again once a place was chosen, by a click elsewhere and by Escape. Without script it stays open.
(() => {
  const menu = document.querySelector(".menu");
  menu.addEventListener("click", (event) => { if (event.target.closest("a")) menu.open = false; });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu.open) { menu.open = false; menu.querySelector("summary").focus(); }
  });
})();

// Light or dark: as the system has it, until the reader chooses.
const theme = (() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const listeners = [];
  const remembered = () => { try { return localStorage.getItem("antiphase-theme"); } catch { return null; } };
  let printing = false;

  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const tell = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", isDark() ? "Change to the light theme" : "Change to the dark theme");
    listeners.forEach((listener) => listener());
  };
  const print = (on) => {
    printing = on;
    if (on) document.querySelectorAll("details").forEach((part) => { part.open = true; });
    tell();
  };

  const before = remembered();
  if (before === "light" || before === "dark") root.dataset.theme = before;
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("antiphase-theme", root.dataset.theme); } catch { /* a page from a file may have no store */ }
    tell();
  });
  system.addEventListener("change", tell);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  tell();
  return { isDark, onChange: (listener) => listeners.push(listener) };
})();

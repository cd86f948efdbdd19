// Light or dark theme: the user's choice, otherwise the system's preference.
(() => {
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("yamame-theme"); } catch { return null; } };
  const apply = () => {
    document.documentElement.dataset.theme = chosen() ?? (preferred.matches ? "dark" : "light");
    dispatchEvent(new Event("themechange"));
  };
  preferred.addEventListener("change", apply);
  globalThis.toggleTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("yamame-theme", next); } catch { /* private window: for this page alone */ }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event("themechange"));
  };
  apply();
})();

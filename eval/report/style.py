"""How a report looks: on a wide screen, on a phone, in the dark, on paper. Fonts are the system's."""

STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --soft: #565b63; --line: #d9dce1; --page: #fff; --tint: #f4f6f8;
  --link: #0b57a4; --warn: #8a3b00; --warn-page: #fff4e5; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8eb; --soft: #a9b0ba; --line: #3b4048; --page: #16181c; --tint: #20242a; --link: #8ab8f0;
    --warn: #ffb877; --warn-page: #33260f; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 75rem;
  margin: 0 auto; padding: 1.5rem 1rem 3rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 0.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 0.6rem; padding-bottom: 0.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; }
h1, h2, h3, h4, div[id] { scroll-margin-top: 3.5rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
a { color: var(--link); }
.warning { max-width: none; border-left: 4px solid var(--warn); background: var(--warn-page); color: var(--warn);
  padding: 0.5rem 0.8rem; }
nav { background: var(--tint); border-radius: 6px; padding: 0.6rem 1rem; margin: 1.2rem 0; font-size: 0.93rem; }
nav ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0.25rem 1.6rem; }
nav .whole { flex-basis: 100%; }
nav li a { display: inline-block; padding: 0 0.1rem; } nav li > a { font-weight: 600; }
nav span a { margin-left: 0.6rem; }
.content { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0 3rem; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0.8rem 0 1.2rem; }
table { border-collapse: collapse; font-size: 0.94rem; line-height: 1.35; }
caption { text-align: left; color: var(--soft); padding-bottom: 0.3rem; }
th, td { padding: 0.28rem 0.75rem; text-align: left; vertical-align: top; }
th:first-child, td:first-child { padding-left: 0.2rem; }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; }
tbody td, tbody th { border-bottom: 1px solid var(--line); font-weight: 400; }
tbody th { min-width: 6rem; } tbody th.long { max-width: 16rem; }
tbody th:first-child { position: sticky; left: 0; background: var(--page); }
.number { text-align: right; font-variant-numeric: tabular-nums; } td.number:not(.noted) { white-space: nowrap; }
.noted small { display: inline-block; min-width: 6.4em; } .noted small:empty { float: right; margin-left: 0.3em; }
.long { overflow-wrap: anywhere; min-width: 6.5rem; }
small { color: var(--soft); font-size: 0.82em; white-space: nowrap; }
.group th { font-weight: 600; } .group th, .group td { vertical-align: bottom; padding-top: 1rem; color: var(--soft);
  border-bottom: 1px solid var(--soft); }
.group td { font-size: 0.86em; } .group td.number { white-space: normal; }
.figures { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0 2rem; flex: 1 1 28rem; min-width: 0; }
.figures img { max-width: 100%; height: auto; display: block; margin: 0.4rem 0; background: #fff; border-radius: 4px; }
details { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: 0.5rem 0.2rem; } summary:hover { background: var(--tint); }
summary h2, summary h3, summary h4 { display: inline; margin: 0; border: 0; font-size: 1.05rem; }
summary span { color: var(--soft); margin-left: 0.6rem; }
details > div { padding: 0 0 0.8rem 0.2rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
@media (max-width: 40rem) {
  body { padding: 1rem 0.75rem 2rem; } h1 { font-size: 1.4rem; }
  .cards, .cards caption, .cards tbody, .cards tr, .cards th, .cards td { display: block; }
  .cards, .scroll:has(.cards) { width: 100%; }
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .cards tr { border-bottom: 1px solid var(--line); padding: 0.45rem 0; }
  .cards tbody th, .cards td { border: 0; padding: 0.1rem 0.2rem; min-width: 0; max-width: none;
    overflow-wrap: anywhere; }
  .cards tbody th { display: inline-block; font-weight: 600; }
  .cards td::before { content: attr(data-label); color: var(--soft); font-size: 0.9em; overflow-wrap: anywhere; }
  .cards td:not(.text) { display: flex; justify-content: flex-end; align-items: baseline; gap: 0 0.5rem; }
  .cards tbody th + th { font-weight: 400; } .cards .noted small { display: inline-block; }
  .cards:has(.noted) td.number:not(.noted) { padding-right: calc(5.25rem * 0.94 + 0.7rem); }
  .cards td:not(.text)::before { flex: 1 1 0; white-space: normal; text-align: left; }
  .cards td.text::before { display: block; }
  .cards tbody td:empty, .cards tbody .group td { display: none; }
  .cards .group { padding: 0.9rem 0 0.2rem; } .cards .group th { font-size: 1.1rem; padding: 0.1rem 0.2rem; }
  nav span { display: block; margin-left: 0.2rem; } nav span a { margin: 0 0.8rem 0 0; line-height: 1.8; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 11px; } nav { display: none; }
  .scroll { overflow: visible; } table { font-size: 9.5px; } th, td { padding: 0.1rem 0.3rem; }
  tbody th { min-width: 0; } .long { min-width: 4rem; }
  tr, img, .warning { break-inside: avoid; } h2, h3, summary { break-after: avoid; }
  details:not([open])::details-content { content-visibility: visible; display: block; height: auto; }
}
"""

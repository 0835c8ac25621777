#include "reports/html_parts.h"

namespace assay::reports {

// Colours come in pairs, ground and ink, of a contrast of at least 4.5 in both schemes; no meaning
// rests on colour alone.
const std::string_view kStyle = R"css(
:root{color-scheme:light dark;
--page:#f7f7f5;--card:#fff;--ink:#1c2024;--soft:#565d66;--line:#e1e2de;--link:#1d5a96;--code:#f1f1ee;
--pass:#dff0e5;--pass-ink:#17512f;--fail:#b3261e;--fail-ink:#fff;--mis:#f6d595;--mis-ink:#523500;
--infra:#e4d8f5;--infra-ink:#45237b;--not:#e9e9e6;--not-ink:#474d54;--skip:#f7f7f5;--skip-ink:#565d66;
--ref:#dce8f5;--ref-ink:#1d4470;
--s0:#1d5a96;--s1:#b3261e;--s2:#8a8f96;--q0:#eeeeea;--q1:#f5c9a0;--q2:#ea8d5c;--q3:#c6432f;--q4:#7d1128;--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (prefers-color-scheme:dark){:root{
--page:#14161a;--card:#1c1f24;--ink:#e5e7ea;--soft:#a3aab3;--line:#30343b;--link:#8fbdf0;--code:#252930;
--pass:#193a2a;--pass-ink:#b5e6c8;--fail:#c6362d;--fail-ink:#fff;--mis:#5c400f;--mis-ink:#ffdf9f;
--infra:#3b2b5b;--infra-ink:#dccdf8;--not:#2b2e34;--not-ink:#c4c9cf;--skip:#14161a;--skip-ink:#a3aab3;
--ref:#1f3449;--ref-ink:#bed8f3;
--s0:#8fbdf0;--s1:#ff8a7d;--s2:#8b929b;--q0:#262a30;--q1:#5c3a22;--q2:#99521f;--q3:#dd6a3c;--q4:#ffc79a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1200px;margin:0 auto;padding:28px 24px 64px}
h1{font-size:27px;line-height:1.25;margin:2px 0 6px;letter-spacing:-.01em}
h2{font-size:18px;margin:40px 0 12px}
h3{font-size:17px;line-height:1.4;margin:0;font-weight:600;overflow-wrap:anywhere}
h4{font-size:13px;color:var(--soft);font-weight:600;margin:18px 0 6px}
p{margin:6px 0}
a{color:var(--link)}
.soft{color:var(--soft)}
.brand{font-weight:600;color:var(--soft);font-size:13px;letter-spacing:.02em}
code,pre,.mono{font-family:var(--mono);font-size:.9em;overflow-wrap:anywhere}
.facts{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;color:var(--soft);margin:0 0 20px}
.facts b{font-weight:600;color:var(--ink);overflow-wrap:anywhere}
.v{display:inline-block;font-size:12px;font-weight:650;line-height:1;padding:5px 7px;border-radius:4px;letter-spacing:.02em;white-space:nowrap}
.pass{background:var(--pass);color:var(--pass-ink)}
.fail{background:var(--fail);color:var(--fail-ink)}
.mistrusted{background:var(--mis);color:var(--mis-ink)}
.infra{background:var(--infra);color:var(--infra-ink)}
.not-executed{background:var(--not);color:var(--not-ink)}
.skipped{background:var(--skip);color:var(--skip-ink);box-shadow:inset 0 0 0 1px var(--line)}
.refused{background:var(--ref);color:var(--ref-ink)}
.totals{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 16px}
.bar{display:flex;height:8px;border-radius:4px;overflow:hidden;margin-bottom:10px;gap:1px}
.bar i{min-width:3px}
.counts{display:flex;flex-wrap:wrap;gap:6px 16px;align-items:center;margin-bottom:8px}
.counts>span{white-space:nowrap}
.counts span.n{font-weight:600;margin-right:5px;font-variant-numeric:tabular-nums}
.counts .zero{opacity:.62}
.sums{font-size:13px;color:var(--soft);margin:0;font-variant-numeric:tabular-nums}
.sums span,.part{display:inline-block;max-width:100%;overflow-wrap:anywhere}
.finding{background:var(--card);border:1px solid var(--line);border-left:5px solid var(--fail);border-radius:8px;padding:16px 20px;margin:14px 0}
.finding.mistrusted-edge{border-left-color:var(--mis-ink)}
.finding.infra-edge{border-left-color:var(--infra-ink)}
.label{display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin-bottom:8px}
.path{display:flex;flex-wrap:wrap;list-style:none;margin:12px 0 14px;padding:0;gap:6px 0}
.path li{display:flex;align-items:center}
.path li span{background:var(--code);border-radius:5px;padding:3px 9px;font-size:13px;overflow-wrap:anywhere}
.path li:not(:last-child)::after{content:"\2192";color:var(--soft);margin:0 7px}
.path b{font-family:var(--mono);font-weight:600}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:12px;margin:12px 0}
.pair div{background:var(--code);border-radius:6px;padding:8px 12px}
.pair strong{display:block;font:600 19px/1.3 var(--mono);overflow-wrap:anywhere}
.pair small,.pair span{color:var(--soft);font-size:13px}
dl{display:grid;grid-template-columns:170px minmax(0,1fr);gap:5px 16px;margin:12px 0;font-size:14px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--code);border-radius:6px;padding:10px 12px;margin:4px 0;white-space:pre-wrap}
pre code{font-size:13px;-webkit-user-select:all;user-select:all}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--soft)}
td.num,th.num{text-align:right;font-variant-numeric:tabular-nums;font-family:var(--mono)}
tr.beyond td{font-weight:600}
tr.first td{background:var(--code)}
.scroll{overflow-x:auto}
details{margin:10px 0}
summary{cursor:pointer;color:var(--link);font-size:14px}
details.finding>summary{color:var(--ink);margin-left:16px;list-style-position:outside}
figure{margin:0}
.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(240px,1fr));gap:14px 26px;margin:6px 0 14px}
figcaption{font-size:13px;margin-bottom:6px}
.plot{display:grid;grid-template-columns:44px minmax(0,1fr);height:120px}
.axis{position:relative}
.axis span{position:absolute;right:7px;font:11px/1 var(--mono);color:var(--soft)}
.plot svg{width:100%;height:100%;background:var(--code);border-radius:4px}
.plot path{fill:none;vector-effect:non-scaling-stroke}
.line{stroke-width:1.5}.dot{stroke-width:4;stroke-linecap:round}
path.s0{stroke:var(--s0)}path.s1{stroke:var(--s1)}path.s2{stroke:var(--s2);stroke-dasharray:3 3}.dot.s2{stroke:none}
path.limit{stroke:var(--soft);stroke-width:1;stroke-dasharray:5 4}
.mark{fill:var(--fail);opacity:.28}
.xaxis{display:flex;justify-content:space-between;margin:4px 0 0 44px;font-size:11px;color:var(--soft);gap:6px}
.xaxis b{color:var(--ink);overflow-wrap:anywhere}
.keys{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:11.5px;color:var(--soft);margin-top:4px}
.curve .keys{margin-left:44px}
.key{display:inline-block;width:14px;height:3px;vertical-align:middle;margin-right:5px;border-radius:1px}
.key.s0{background:var(--s0)}.key.s1{background:var(--s1)}.key.s2{background:repeating-linear-gradient(90deg,var(--s2) 0 3px,transparent 3px 6px)}
.key.limit{background:repeating-linear-gradient(90deg,var(--soft) 0 5px,transparent 5px 9px);height:1px}
.errors svg{width:100%;border-radius:4px;display:block}
.errors .down,.errors .across{font-size:11.5px;color:var(--soft);margin:0 0 4px}.errors .across{text-align:right;margin:4px 0 0}
.errors .key{height:10px;width:10px}
.q0{fill:var(--q0);background:var(--q0)}.q1{fill:var(--q1);background:var(--q1)}.q2{fill:var(--q2);background:var(--q2)}
.q3{fill:var(--q3);background:var(--q3)}.q4{fill:var(--q4);background:var(--q4)}
.heat{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:12px 0}
.heat{overflow-x:auto}
.heat table{table-layout:fixed}
.heat th,.heat td{border:0;padding:2px;vertical-align:middle}
.heat thead th{font-size:12px;text-align:center;padding-bottom:6px}
.heat thead th:first-child{text-align:left}
.heat tbody th{font-weight:400;color:var(--ink);font-size:13px;padding-right:12px;overflow-wrap:anywhere}
.heat tbody th b{font-weight:600}
.heat td .v{display:block;text-align:center;padding:7px 0;font-size:10.5px;letter-spacing:0;text-decoration:none}
.heat td small{display:block;font-weight:400;font-size:10px;margin-top:3px;white-space:normal;line-height:1.25;letter-spacing:0}
.heat td.none{text-align:center;color:var(--soft)}
.heat a.v:hover{text-decoration:underline}
.tp{display:none}
.reasons{list-style:none;padding:0;margin:0}
.reasons>li{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 16px;margin:8px 0}
.reasons details{margin:4px 0 0}
.reasons ul{padding-left:18px;margin:6px 0;font-size:13px}
li code b{color:var(--link);font-weight:700}
.legend{font-size:13px;color:var(--soft);margin:6px 0 12px;padding:0;list-style:none}
ul.legend{display:grid;grid-template-columns:repeat(auto-fill,minmax(330px,1fr));gap:6px 24px}
ul.legend li{display:flex;gap:10px;align-items:flex-start;line-height:1.6}
@media (max-width:640px){
main{padding:18px 14px 40px}h1{font-size:22px}
.finding{padding:14px}.pair{gap:8px}ul.legend{grid-template-columns:minmax(0,1fr)}
dl{grid-template-columns:minmax(0,1fr);gap:0}dd{margin-bottom:8px}
.heat{padding:12px}
.heat thead,.heat td.none{display:none}.heat table,.heat tbody{display:block}.heat table{min-width:0!important}
.heat tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(104px,1fr));margin-bottom:12px}
.heat tbody th{grid-column:1/-1;padding-bottom:3px}
.ops thead{display:none}.ops,.ops tbody{display:block}
.ops tr{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));border-bottom:1px solid var(--line);padding:5px 0}
.ops tr.first{background:var(--code)}
.ops td{border:0;padding:1px 4px 1px 0}.ops td:first-child{grid-column:1/-1}
.ops td.num{text-align:left}.ops td.num::before{content:attr(data-name);display:block;font:11px system-ui,sans-serif;color:var(--soft)}
.tp{display:block;font-size:11px;color:var(--soft);text-align:center}
}
)css";

}  // namespace assay::reports


Bokeh.set_log_level("error");
const place = document.getElementById("timeline");
place.textContent = "";
Bokeh.embed.embed_item(JSON.parse(document.getElementById("models").textContent), place);

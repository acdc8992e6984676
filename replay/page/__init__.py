"""The page's files, as package data: index.html, style.css and ES modules. No Python."""

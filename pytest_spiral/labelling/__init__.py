"""Labels by people, or by models in their place: drawing what to label, pages, files, agreement."""

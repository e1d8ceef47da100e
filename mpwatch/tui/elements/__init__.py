"""What several pages are made of: styled text, tables, header, tabs."""
